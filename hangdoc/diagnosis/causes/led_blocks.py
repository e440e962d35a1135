"""HD101 in a block that one rank goes through first: the others wait at its entrance, and cannot join a call in it."""

from __future__ import annotations

from hangdoc.diagnosis.calls.history import END
from hangdoc.diagnosis.calls.stack_calls import group_shown
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import call_at, call_name, cited, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.choice import on_own_way
from hangdoc.diagnosis.condition.elsewhere.led_block import entered_later
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.stacks import path_of
from hangdoc.model.message import Joined, Ranks, Verb, joined, sentence

_MOST = 2
"""Conditions that are named; chosen by hand: a longer list helps nobody."""


@cause("HD101", explains=Diverged, order=128)
def within_a_led_block(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD101: the culprits call, in the body of such a block, what the others at its entrance come to only later.

    Whether these would make the call as well does not matter, nor which condition the culprits came to it by.
    Example: rank 0 gathers in `with accelerator.main_process_first():`, and the others are in its barrier.
    """
    gap = blame.found.gap
    if gap is None or gap.mine is None or gap.theirs is None or END in (gap.mine.op, gap.theirs.op):
        return None
    culprits, others = blame.culprits, others_of(case, blame)
    block = entered_later(case.sources, gap)
    shown = group_shown(gap.mine.stack)
    if block is None or (shown is not None and not set(others) <= set(shown[1])):
        return None
    if any(path_of(case.activities[rank].stack) != path_of(gap.theirs.stack) for rank in others):
        return None
    points = on_own_way(case, (gap.mine.stack, gap.theirs.stack), (culprits, others))
    came_by = list(dict.fromkeys(cited(p.guard, p.file) for p in points))[:_MOST]
    return Finding(
        "HD101",
        sentence(
            [
                [Ranks(culprits), " ", Verb(culprits, "calls", "call"), " ", call_at(gap.mine)],
                [" in the body of ", block, ", at whose entrance the others are"],
            ],
            where_they_wait(case, others),
        ),
        joined(
            [
                ["that block lets ", Ranks(culprits), " go first: the others enter it when ", Ranks(culprits), " "],
                [Verb(culprits, "has", "have"), f" left it, and {call_name(gap.mine)} waits for them"],
            ],
            [Ranks(culprits), " came to it by ", Joined(came_by, " and ")] if came_by else "",
        ),
        f"call {call_name(gap.mine)} after that block, where every rank comes to it",
        decided_at=block,
    )
