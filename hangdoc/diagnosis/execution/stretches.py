"""What two ranks' main threads have tested since the last call that both made alike.

Example: both made all_reduce #12 at train.py:61, then rank 0 came by three tests and waits in #13, rank 1 by two and
waits in a barrier → these three and these two.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple

from hangdoc.diagnosis.execution.alignment import Step
from hangdoc.model.branches import MOST_BRANCHES, MOST_TAKEN, BranchCounts
from hangdoc.model.journal import Call, Journal
from hangdoc.model.snapshot import RankSnapshot

_LONGEST = 400
"""Tests of a side; chosen by hand: a snapshot holds some 100."""


class Stretch(NamedTuple):
    """The tests of one rank in order; ``steps`` and ``tests`` belong together."""

    steps: list[Step]
    tests: list[BranchCounts]


def stretches(mine: RankSnapshot, theirs: RankSnapshot) -> tuple[Call, Stretch, Stretch] | None:
    """(the last call that both made alike, what each has tested since); None where that was not recorded."""
    if any(rank.journal is None or rank.process is None or not rank.process.branches for rank in (mine, theirs)):
        return None
    made = {key: at for key, _, at in _calls(theirs.journal)}
    for key, call, at in reversed(list(_calls(mine.journal))):
        if key in made:
            one, other = _since(mine, at), _since(theirs, made[key])
            return (call, *_told_of_both((mine, theirs), (one, other))) if one and other else None
    return None


def _calls(journal: Journal | None) -> Iterator[tuple[object, Call, int]]:
    """(what is the same on ranks that made the call alike, the call, when it was issued) of each."""
    members = {group.name: group.members for group in journal.groups} if journal is not None else {}
    for place, call in enumerate(journal.calls if journal is not None else ()):
        way = tuple((frame.file, frame.line) for frame in journal.stack(call.stack)) if journal is not None else ()
        issued = journal.call_issued_ns(place) if journal is not None else 0
        if issued:
            yield (call.group, members.get(call.group), call.sequence, call.op, way), call, issued


def _since(rank: RankSnapshot, at_ns: int) -> Stretch | None:
    """None where nothing is recorded, or older tests than those that were kept may belong to it."""
    process, journal = rank.process, rank.journal
    if process is None or journal is None or not process.branches:
        return None
    last = [at for place in range(len(journal.calls))[-2:] if (at := journal.call_issued_ns(place))]
    if not last:
        return None
    all_since = min(last) if len(process.taken) < MOST_TAKEN else process.taken[0].at_ns
    if at_ns < all_since:
        return None
    taken = [each for each in process.taken if each.at_ns > at_ns and 0 <= each.branch < len(process.branches)]
    tests = [process.branches[each.branch] for each in taken[:_LONGEST]]
    return Stretch([Step(_place(t), each.value) for t, each in zip(tests, taken, strict=False)], tests)


def _place(test: BranchCounts) -> tuple[str, str, int, int]:
    return test.file, test.function, test.line, test.column


def _told_of_both(ranks: tuple[RankSnapshot, RankSnapshot], found: tuple[Stretch, Stretch]) -> tuple[Stretch, Stretch]:
    """Without tests that one side may have gone by untold: it has come by before, and not all outcomes were told."""
    places = {step.place for side in found for step in side.steps}
    told = [
        {step.place for step in own.steps} | _always_told(rank, places) for rank, own in zip(ranks, found, strict=True)
    ]
    both = told[0] & told[1]
    sides = [[(s, t) for s, t in zip(*side, strict=True) if s.place in both] for side in found]
    mine, theirs = (Stretch([step for step, _ in side], [test for _, test in side]) for side in sides)
    return mine, theirs


def _always_told(rank: RankSnapshot, places: set[Hashable]) -> set[Hashable]:
    """Those of the places at which the rank has told of every test."""
    branches = rank.process.branches if rank.process is not None else ()
    recorded = {_place(test) for test in branches}
    untold = {_place(test) for test in branches if not test.whole}
    return (places if len(branches) < MOST_BRANCHES else places & recorded) - untold
