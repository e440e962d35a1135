"""When the condition came out as nowhere before: 'True on rank 1 alone, the 412th time; False the 411 times before'.

Only counts that have every value say so: of code that was recorded from its first call, and that was not told of too
often. A ring that has lost its older entries proves no more than what came last.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import inf

from hangdoc.diagnosis.execution.decisions import Key
from hangdoc.diagnosis.execution.executions import Executions
from hangdoc.diagnosis.execution.outcomes import Outcome, Place, place_of
from hangdoc.diagnosis.execution.table import Table
from hangdoc.diagnosis.execution.tested import ENDED, FALSE, ROUND, TRUE, Condition, condition_at
from hangdoc.model.branches import LAST
from hangdoc.model.diagnosis import BranchMoment
from hangdoc.model.process import Process

_Counted = Mapping[int, tuple[Mapping[str, int], str, bool]]
"""Rank → (how often it came out in each way, how last, whether that is all)."""


def moment(
    table: Table, executions: Executions, key: Key, ranks: Collection[int], culprits: tuple[int, ...]
) -> BranchMoment | None:
    """The moment of the condition that begins at the key's line; None where nothing proves one. ``ranks``: all."""
    found, words = _counted(table, executions, key, ranks)
    return _once(found, words, ranks, {*_came(table, key, ranks, found)}, culprits)


def apart(table: Table, executions: Executions, key: Key, ranks: Collection[int], culprits: tuple[int, ...]) -> str:
    """How the condition came out on each of the culprits, always, and never on another rank that came to it; of a loop
    'ended' where each of them ended it more often than all others, which were in more of its rounds. '' where it is
    not so, or not all of that is recorded. ``ranks``: all of the job.

    Example: `if link.gbps < slow:` was True on rank 3 all 4 times, and False on the others all 4 times → 'True'.
    """
    found, words = _counted(table, executions, key, ranks)
    others = {*_came(table, key, ranks, found)} - {*culprits}
    if not culprits or not others or not {*culprits, *others} <= {r for r, (_, _, whole) in found.items() if whole}:
        return ""
    mine, theirs = ([found[rank][0] for rank in side] for side in (culprits, others))
    if ROUND in words:
        sooner = max(each.get(ROUND, 0) for each in mine) < min(each.get(ROUND, 0) for each in theirs)
        oftener = min(each.get(ENDED, 0) for each in mine) > max(each.get(ENDED, 0) for each in theirs)
        return ENDED if sooner and oftener else ""
    values, other = ({value for each in side for value, count in each.items() if count} for side in (mine, theirs))
    return values.pop() if len(values) == 1 and len(other) == 1 and values != other else ""


def came_last(table: Table, executions: Executions, key: Key, ranks: Collection[int]) -> tuple[str, int] | None:
    """(how the condition came out last on all of the ranks, the how manieth time that was); None where they differ in
    that, or one of them is not known.

    Example: `if last` was True on ranks 0 and 1 when each tested it for the 16th time → ('True', 16).
    """
    found, _ = _counted(table, executions, key, ranks)
    last = {(found[rank][1], sum(found[rank][0].values())) if rank in found else ("", 0) for rank in ranks}
    one = last.pop() if len(last) == 1 else ("", 0)
    return one if one[0] else None


def _came(table: Table, key: Key, ranks: Collection[int], found: _Counted) -> list[int]:
    """The ranks that may have come to it."""
    return [rank for rank in ranks if rank in found or table.ran(rank, *key[:2]) is not False]


def _counted(
    table: Table, executions: Executions, key: Key, ranks: Collection[int]
) -> tuple[_Counted, Collection[str]]:
    """(what the recorders have counted of it, the ways in which it can come out)."""
    file, line, _ = key
    seen = table.outcomes.recorded()
    condition = condition_at(executions.sources, file, line) if seen else None
    if condition is not None:
        found: dict[int, tuple[Mapping[str, int], str, bool]] = {}
        for rank, process in seen.items():
            at = [place for place in table.outcomes.on_line((rank,), file, condition.line) if condition.holds(place)]
            outcome = table.outcomes.of(rank, at[0]) if len(at) == 1 else None
            if outcome is not None and set(outcome.counts) <= condition.words.keys():
                counts = {condition.words[value]: count for value, count in outcome.counts.items()}
                last, whole = _last(process, at[0], outcome, condition)
                found[rank] = (counts, condition.words.get(last, ""), whole)
        if found:
            return found, tuple(condition.words.values())
    known = {rank: each for rank in ranks if (each := executions.decided(rank, key)) is not None}
    return {rank: (counts, last, True) for rank, (counts, last) in known.items()}, (TRUE, FALSE)


def _once(
    found: _Counted,
    words: Iterable[str],
    ranks: Collection[int],
    came: Collection[int],
    culprits: tuple[int, ...],
) -> BranchMoment | None:
    """``came``: those of the ranks that may have come to it. A loop has ended early where the others are in a round
    that it did not have."""
    for value in dict.fromkeys(word for word in words if word != ROUND):
        once = [r for r, (counts, last, whole) in found.items() if whole and last == value and counts[value] == 1]
        others = [rank for rank in ranks if rank not in once]
        before = {sum(found[rank][0].values()) - 1 for rank in once}
        if len(before) != 1 or min(before) < 1 or any(found[r][0].get(value) for r in others if r in found):
            continue
        if any(found[r][0].get(ROUND, inf) <= max(before) for r in others if r in found):
            continue
        if others and (set(once) <= set(culprits) or set(once).isdisjoint(culprits)):
            alone = all(rank in found and found[rank][2] for rank in others if rank in came)
            return BranchMoment(tuple(sorted(once)), value, before.pop(), alone)
    return None


def _last(process: Process, place: Place, outcome: Outcome, condition: Condition) -> tuple[str, bool]:
    """(the newest value, '' where that is not known; whether the counts have every value)"""
    numbers = [n for n, t in enumerate(process.branches) if place_of(t.file, t) == place]
    whole = outcome.whole and len(numbers) == condition.copies
    if len(numbers) == 1:
        lost = len(outcome.last) < min(LAST, outcome.times)
        return "" if lost else outcome.last[-1:], whole
    # Only the main thread's own order tells which of several jumps came last.
    return next((taken.value for taken in reversed(process.taken) if taken.branch in numbers), ""), whole
