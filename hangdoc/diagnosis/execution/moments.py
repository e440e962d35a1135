"""When the condition came out as nowhere before: 'True on rank 1 alone, the 412th time; False the 411 times before'.

Only counts that have every value say so: of code that was recorded from its first call, and that was not told of too
often. A ring that has lost its older entries proves no more than what came last.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from hangdoc.diagnosis.execution.decisions import Key
from hangdoc.diagnosis.execution.outcomes import Outcome, Outcomes, Place, place_of
from hangdoc.diagnosis.execution.parting import Executions
from hangdoc.diagnosis.execution.tested import FALSE, ROUND, TRUE, Condition, condition_at
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.branches import LAST
from hangdoc.model.diagnosis import BranchMoment
from hangdoc.model.process import Process


def moment(
    sources: Sources, outcomes: Outcomes, file: str, line: int, ranks: Collection[int], culprits: tuple[int, ...]
) -> BranchMoment | None:
    """The moment of the condition that begins in that line; None where nothing proves one. ``ranks``: all of the
    job."""
    seen = outcomes.recorded()
    condition = condition_at(sources, file, line) if seen else None
    if condition is None:
        return None
    found: dict[int, tuple[Mapping[str, int], str, bool]] = {}
    for rank, process in seen.items():
        places = [place for place in outcomes.on_line((rank,), file, condition.line) if condition.holds(place)]
        outcome = outcomes.of(rank, places[0]) if len(places) == 1 else None
        if outcome is not None and set(outcome.counts) <= condition.words.keys():
            counts = {condition.words[value]: count for value, count in outcome.counts.items()}
            last, whole = _last(process, places[0], outcome, condition)
            found[rank] = (counts, condition.words.get(last, ""), whole)
    return _once(found, condition.words.values(), ranks, culprits)


def moment_of_decisions(
    executions: Executions, key: Key, ranks: Collection[int], culprits: tuple[int, ...]
) -> BranchMoment | None:
    """The same of a condition that several jumps make up, by the decisions of whole conditions. ``ranks``: all."""
    found = {rank: at for rank in ranks if (at := executions.decided(rank, key)) is not None}
    return _once({r: (counts, last, True) for r, (counts, last) in found.items()}, (TRUE, FALSE), ranks, culprits)


def _once(
    found: Mapping[int, tuple[Mapping[str, int], str, bool]],
    words: Iterable[str],
    ranks: Collection[int],
    culprits: tuple[int, ...],
) -> BranchMoment | None:
    """``found``: rank → (how often it came out in each way, how last, whether that is all); ``ranks``: all."""
    for value in dict.fromkeys(word for word in words if word != ROUND):
        once = [r for r, (counts, last, whole) in found.items() if whole and last == value and counts[value] == 1]
        others = [rank for rank in ranks if rank not in once]
        before = {sum(found[rank][0].values()) - 1 for rank in once}
        if len(before) != 1 or min(before) < 1 or any(found[r][0].get(value) for r in others if r in found):
            continue
        if others and (set(once) <= set(culprits) or set(once).isdisjoint(culprits)):
            alone = all(rank in found and found[rank][2] for rank in others)
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
