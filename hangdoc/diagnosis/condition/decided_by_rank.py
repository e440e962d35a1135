"""Of several conditions, the one whose value the rank decides one to three steps back: it differs for sure.

Example: rank 2 alone is in emit(), at

    64  if step % self.every:
    65      return
    66  self.active and self.emit(step)

where the property `active` returns `self.rank in self.wanted` → `self.active`, and not the round's number.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from hangdoc.diagnosis.bounds import TRIED
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.elsewhere.set_before import set_before
from hangdoc.diagnosis.frames.names import is_rank_name, pattern
from hangdoc.diagnosis.source.guards import CONDITIONS
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.message import Condition


def rank_decided_first(
    sources: Sources, possible: list[BranchPoint], passed_by_both: Callable[[BranchPoint], bool]
) -> list[BranchPoint]:
    """``possible``, where the first is a condition of which nothing says that it differs, with that one of its side
    first that goes by the rank; unchanged where there is none. ``passed_by_both``: the other side has been under it
    before, so that not the rank alone decides it."""
    first = possible[0] if possible else None
    if first is None or not _is_plain(first) or first.rank_like or first.differs:
        return possible
    alike = [p for p in possible if _is_plain(p) and p.guarded == first.guarded][:TRIED]
    if len(alike) > 1:
        chosen = next((p for p in alike if goes_by_rank(sources, p) and not passed_by_both(p)), first)
        return [chosen, *(p for p in possible if p is not chosen)]
    return possible


def _is_plain(point: BranchPoint) -> bool:
    """True for a condition of the user's around the call itself."""
    if point.guard.kind not in (*CONDITIONS, "match"):
        return False
    return not (point.of_library or point.made or point.registered or point.quiet or point.own_arm or point.both_arms)


def goes_by_rank(sources: Sources, point: BranchPoint) -> bool:
    """True if what the condition asks, or what set that, tests the rank."""
    found = set_before(sources, point.file, point.guard.line)
    return any(is_rank_name(test.source) for answer in found for test in answer.tests)


def is_of_a_part(sources: Sources, condition: Condition) -> bool:
    """True if the rank decides that condition, or what it asks: whoever has that part has been there from the start.

    Example: `if self.last:`, set by `self.last = rank == world - 1` → True.
    """
    answers = (each for each in set_before(sources, condition.file, condition.line) if each.sets)
    tests = (condition, *(test for each in answers for test in each.tests))
    return any(pattern("rank_word").search(each.source) and not _asks_more(each.source) for each in tests)


def _asks_more(test: str) -> bool:
    """True of `rank == 2 and late` and of `step % world == rank`, which come out so at a time of their own."""
    return not {"and", "or", "%"}.isdisjoint(re.findall(r"\w+|%", test))
