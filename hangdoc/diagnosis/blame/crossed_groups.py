"""Devices that use two groups in opposite order: each has issued both calls, and is at the one it issued first.

Example: rank 2 issued B then A, the others A then B → rank 2 is at B, the others at A, and all have issued both.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from hangdoc.diagnosis.blame.tie_break import ranks_text
from hangdoc.diagnosis.calls.exchanged import is_swapped
from hangdoc.diagnosis.calls.history import Token
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.model.kinds import Confidence

_MOST_CALLS = 16
"""Calls that stuck ranks are at, of which each pair is tried; chosen by hand."""


@dataclass(frozen=True, slots=True)
class CrossedGroups(Explanation):
    """The culprits are at ``mine``, the others at ``theirs``, and each side has issued the other's call as well."""

    mine: Token
    theirs: Token
    others: tuple[int, ...]


def crossed_groups(case: Case) -> Blame[CrossedGroups] | None:
    """The ranks that use two groups the other way round than the others; None where none do."""
    if not case.streams:
        return None
    fewest_first = sorted(_stuck_at(case), key=lambda each: len(each[1]))[:_MOST_CALLS]
    for (mine, here), (theirs, there) in combinations(fewest_first, 2):
        if mine.group == theirs.group or not is_swapped(case.programs, mine, theirs):
            continue
        if not _is_issued_by(case, there[0], mine) or not _is_issued_by(case, here[0], theirs):
            continue
        both = set(mine.group[1]) & set(theirs.group[1])
        sides = [tuple(r for r in ranks if not both or r in both) for ranks in (here, there)]
        if all(sides):
            return _blamed(mine, theirs, sides)
    return None


def _stuck_at(case: Case) -> list[tuple[Token, list[int]]]:
    """(call, the stuck ranks whose devices are at it) of each call that stuck ranks are at."""
    found: dict[tuple[object, int], tuple[Token, list[int]]] = {}
    for rank in sorted(case.graph.stuck & case.streams.fronts.keys()):
        call = case.streams.fronts[rank].call
        if call is not None:
            found.setdefault((call.group, call.sequence), (call, []))[1].append(rank)
    return list(found.values())


def _is_issued_by(case: Case, rank: int, call: Token) -> bool:
    """True if the rank has issued that very call under its number: then the group by itself matches."""
    history = next((h for h in case.histories if h.key == call.group), None)
    own = history.at(rank, call.sequence) if history is not None else None
    return own is not None and (own.op, own.sizes, own.site) == (call.op, call.sizes, call.site)


def _blamed(mine: Token, theirs: Token, sides: list[tuple[int, ...]]) -> Blame[CrossedGroups]:
    culprits, others = sides
    found = CrossedGroups(mine, theirs, others)
    sure = f"{ranks_text(culprits)} issued the two calls in the other order, and what follows agrees"
    if len(culprits) == len(others):
        return Blame(found, culprits, (others,), proved=True, sure=f"{sure}; nothing tells which order is right")
    return Blame(found, culprits, proved=True, confidence=Confidence.LIKELY, sure=sure)
