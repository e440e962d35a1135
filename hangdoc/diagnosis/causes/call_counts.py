"""How many calls of a line each side has made, as a sentence compares them."""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.calls.history import GroupHistory, Token
from hangdoc.diagnosis.causes.finding import others_of
from hangdoc.diagnosis.causes.phrases import line_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged, Explanation
from hangdoc.diagnosis.frames.stacks import lines_of
from hangdoc.model.message import Message
from hangdoc.model.process import Frame


@dataclass(frozen=True, slots=True)
class Counts:
    """How many calls from the line at ``at`` the culprits (``mine``) and the others (``theirs``) have made."""

    mine: int
    theirs: int
    at: Frame | None


def call_counts(case: Case, blame: Blame[Diverged]) -> Message:
    """': 7 calls from train.py:61 against 8' of the call that is one too many or too few; '' where a side never made
    it, or the journal does not reach back to the first call."""
    gap = blame.found.gap
    if gap is None or blame.found.alignment.history.first > 1:
        return ""
    counts = calls_from(case, blame, blame.found.alignment.history, gap.token)
    return compared(counts) if counts is not None and counts.mine and counts.theirs else ""


def compared(counts: Counts | None) -> Message:
    """': 7 calls from train.py:61 against 8', the culprits' number first."""
    if counts is None:
        return ""
    calls = "call" if counts.mine == 1 else "calls"
    line: Message = [" from ", line_of(counts.at)] if counts.at is not None else " of that kind"
    return [f": {counts.mine} {calls}", line, f" against {counts.theirs}"]


def calls_in_loop(case: Case, blame: Blame[Diverged]) -> Counts | None:
    """The calls from inside the loop that the sides left differently; None where the journal does not reach back to
    the first call, or the sides made equally many."""
    gap = blame.found.gap
    if gap is None or blame.found.alignment.history.first > 1:
        return None
    loop = blame.found.branch_point
    inside = gap.theirs if loop is not None and loop.guarded == 1 else gap.mine
    return calls_from(case, blame, blame.found.alignment.history, inside)


def calls_from(case: Case, blame: Blame[Explanation], history: GroupHistory, call: Token | None) -> Counts | None:
    """How often each side made ``call`` from its line; None where that is unknown, equal, or not one number a side."""
    if call is None or not call.site:
        return None
    lines = lines_of(call.site)
    counts: list[set[int]] = []
    for ranks in filter(None, (blame.culprits, others_of(case, blame))):
        of_side = {sum(lines_of(t.site) == lines and t.op == call.op for t in each) for each in history.lists(ranks)}
        counts.append(of_side or {0})
    if [len(each) for each in counts] != [1, 1] or counts[0] == counts[1] or history.inferred:
        return None
    return Counts(counts[0].pop(), counts[1].pop(), call.frame)
