"""What else would look the same as a call that is missing or one too many."""

from __future__ import annotations

from collections.abc import Sequence

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import Token
from hangdoc.diagnosis.causes.deciding import (
    has_namesakes,
    item_of,
)
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.choice import also_on_the_way
from hangdoc.diagnosis.condition.elsewhere.dispatched import looked_up_below
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.stacks import every_frame, fork, same_line, user_stack
from hangdoc.diagnosis.source.loops import ends_alike


# One branch for each thing that would look the same, the likeliest first.
def doubt_about_call(case: Case, blame: Blame[Diverged], gap: Gap) -> str:
    """What would look the same as this divergence, or what was not seen of it; '' where nothing is in doubt."""
    if blame.found.branch_point is not None:
        return doubt_about_condition(case, blame)
    if gap.mine is None or gap.theirs is None:
        return ""
    if gap.token.frame is None:
        return "which line issued the call was not seen"
    if _may_follow_the_loop(case, gap.mine, gap.theirs) or _may_follow_the_loop(case, gap.theirs, gap.mine):
        return "a loop that one side left a round sooner looks the same"
    sought = case.job.mode != "dump" and any(note.what == "source" for note in case.job.unavailable)
    if sought and not is_read(case, (gap.mine, gap.theirs)):
        return "the source of these lines was not read"
    return "they diverge within a library, whose loops and conditions were not read" if _within_a_library(gap) else ""


def _may_follow_the_loop(case: Case, call: Token, other: Token) -> bool:
    """True if the rank of ``call`` issued nothing behind it and never made it before, while ``other`` is one that its
    rank makes in every round: the first may be what all do after the loop.

    Example: on devices, [A, B, A, B, X] against [A, B, A, B, A, B], where X is a barrier → True.
    """
    mine, theirs = case.programs.get(call.rank), case.programs.get(other.rank)
    if not case.streams or mine is None or theirs is None or min(call.order, other.order) < 0:
        return False
    if call.order + 1 < len(mine.tokens) or any(_alike(t, call) for t in mine.tokens[: call.order]):
        return False
    return any(_alike(t, other) for t in theirs.tokens[: other.order])


def _alike(one: Token, other: Token) -> bool:
    return (one.site, one.op, one.sizes) == (other.site, other.op, other.sizes)


def doubt_about_condition(case: Case, blame: Blame[Diverged]) -> str:
    """What else fits where a condition was found that both sides came to, and took differently."""
    first = blame.found.branch_points[0]
    if first.seen:
        return ""
    if first.doubt:
        return first.doubt
    if has_namesakes(case, first):
        return "which method the others ran was not seen"
    if _may_run_another_function(case, blame.found.gap, first):
        return "which function the others ran there was not seen"
    if _asks_its_items(case, first):
        return "fewer items to ask look the same"
    if (first.guard.kind == "decorator" or first.quiet) and any(p.uneven for p in blame.found.branch_points):
        return "a loop that ended early looks the same"
    if item_of(case, first, blame.found.gap):
        return "which items the others went over was not seen"
    return "which of the conditions decided it was not seen" if also_on_the_way(blame.found.branch_points) else ""


def _within_a_library(gap: Gap) -> bool:
    """True if the extra call and the others' were made by one user line, and the stacks fork in library code below it.

    Example: train.py:9 → engine.py:3 → all_reduce against train.py:9 → engine.py:8 → barrier.
    """
    if gap.kind != "delete" or gap.mine is None or gap.theirs is None or not user_stack(gap.mine.stack):
        return False
    diverged = fork(gap.mine.stack, gap.theirs.stack, same=same_line, frames_of=every_frame).frames
    return diverged is not None and is_library(diverged[0])


def _may_run_another_function(case: Case, gap: Gap | None, first: BranchPoint) -> bool:
    """True if what is under the condition is looked up by a key, or is a method of a loop's item, and none of the
    values says which way each side went: the others may have gone the same way, to another function."""
    if gap is None or gap.mine is None or gap.theirs is None or first.differs or first.rank_like:
        return False
    found = looked_up_below(case.sources, (gap.mine.stack, gap.theirs.stack), first)
    others = gap.theirs if first.guarded == 0 else gap.mine
    return found is not None and case.table.ran(others.rank, found.caller.file, found.caller.line or 0) is not False


def _asks_its_items(case: Case, first: BranchPoint) -> bool:
    """True for `any(tripped(m) for m in self.monitors)` and `all(…)` over what may be longer on one rank."""
    tree = case.sources.function(first.file, first.guard.line)
    asked = first.guard.kind == "expression" and first.guard.condition.startswith(("any(", "all("))
    return asked and not first.differs and tree is not None and not ends_alike(tree, first.guard.line)


def is_read(case: Case, tokens: Sequence[Token | None]) -> bool:
    """True if the source of a line was read that leads to one of the calls."""
    lines = [frame for token in tokens if token is not None for frame in user_stack(token.stack)]
    return any(case.sources.function(frame.file, frame.line) for frame in lines)
