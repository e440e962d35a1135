"""Fewer calls and as many rounds: one of a loop's rounds made no call."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.causes.phrases import cited
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.loops.loop_counts import makes_fewer_calls_than_rounds
from hangdoc.diagnosis.condition.loops.round_or_loop import skipped_round
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.landmarks import is_implicit, plain
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS
from hangdoc.diagnosis.source.loops import has_quiet_rounds
from hangdoc.diagnosis.source.queries import quiet_condition, turns_quiet
from hangdoc.model.message import Condition, Message
from hangdoc.model.process import Stack


@dataclass(frozen=True, slots=True)
class RoundWithoutCall:
    """The other explanation of fewer calls: as many rounds, one of them without the call. Empty where there is none."""

    why: Message = ""
    fix: str = ""
    doubt: str = ""
    quiet: bool = False
    """The call is one of those that a library leaves out in some rounds: calls are no rounds."""
    by: Condition | None = None
    """What decides which rounds these are."""
    skip: Condition | None = None
    """The user's condition that may have kept a round from the call."""


EARLY_OR_QUIET = "a loop that ended early and a round without the call look the same"


def round_without_call(case: Case, blame: Blame[Diverged], loop: BranchPoint, gap: Gap) -> RoundWithoutCall:
    """What the report adds where the culprits may have been in the loop just as often, and made no call in a round."""
    if loop.guarded != 1 or loop.recorded:
        return RoundWithoutCall()
    skip = skipped_round(case.sources, blame.found.branch_points)
    if skip is not None:
        why: Message = ["or one of its rounds skipped the call, at ", cited(skip.guard, skip.file)]
        at = cited(skip.guard, skip.file) if skip.guard.kind in CONDITIONS else None
        return RoundWithoutCall(why, fix_of_skip(skip), EARLY_OR_QUIET, skip=at)
    if not is_implicit(gap.token.stack):
        return RoundWithoutCall()
    tree = case.sources.function(loop.file, loop.guard.line)
    if tree is not None and has_quiet_rounds(tree, loop.guard.line):
        return RoundWithoutCall("or more of its rounds made no call, as under no_sync", doubt=EARLY_OR_QUIET)
    hidden = _turned_quiet(case, loop, gap.token.stack)
    if hidden is None and not makes_fewer_calls_than_rounds(case, loop, gap.token):
        return RoundWithoutCall()
    by = hidden if isinstance(hidden, Condition) else None
    said: Message = [", by ", by] if by is not None else ""
    why = ["or it went round as often, and more of its rounds made no call, as under no_sync", said]
    return RoundWithoutCall(why, "; and let all ranks synchronize in the same rounds", EARLY_OR_QUIET, True, by)


def _turned_quiet(case: Case, loop: BranchPoint, stack: Stack) -> Condition | bool | None:
    """The condition that turns the synchronisation off in a function that the loop calls on the way to the call; True
    where such a function does so without one, None where none does."""
    found: Condition | bool | None = None
    for frame in takewhile(lambda f: (f.file, plain(f.function)) != (loop.file, loop.function), user_stack(stack)):
        tree = case.sources.function(frame.file, frame.line)
        if tree is not None and turns_quiet(tree):
            where = quiet_condition(tree)
            found = Condition(where[1], frame.file, where[0]) if where is not None else found or True
    return found


def fix_of_skip(skip: BranchPoint) -> str:
    """'; or let all ranks agree on `late` in every round', to follow another repair."""
    if skip.guard.kind not in CONDITIONS:
        return "; or make sure that no rank skips the call in one of its rounds"
    condition = skip.guard.condition.removeprefix("if ").removesuffix(":")
    return f"; or let all ranks agree on `{condition}` in every round"
