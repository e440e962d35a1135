"""Numbers of collectives that do not mean the same on all ranks.

Until torch 2.5 a batch of messages took a number of its group's collectives, on the ranks that took part in it. The
reader takes them out again, as long as it sees them: of a ring that has lost its oldest entries it does not know how
many there were. What completed last on one rank completed on all of them, so that is the same call.
"""

from __future__ import annotations

from dataclasses import replace

from hangdoc.model.journal import Call, Journal
from hangdoc.model.operations import operation
from hangdoc.model.snapshot import JobSnapshot


def with_aligned_numbers(job: JobSnapshot) -> JobSnapshot:
    """``job`` with the calls of such groups renumbered: the last that completed has one number on all members.

    Example: rank 0 (nothing lost) completed #12 last, rank 1 (oldest entries lost) #14 → rank 1's numbers less 2.
    """
    journals = {each.rank: each.journal for each in job.ranks if each.journal is not None}
    unsure = {name for journal in journals.values() for name in journal.unsure_numbers}
    if not unsure:
        return job
    shifts: dict[int, dict[str, int]] = {}
    for name, numbers in _last_numbers(job, unsure):
        doubtful = {rank for rank in numbers if name in journals[rank].unsure_numbers}
        reference = max([numbers[rank] for rank in numbers if rank not in doubtful] or numbers.values())
        for rank in doubtful:
            if numbers[rank] != reference:
                shifts.setdefault(rank, {})[name] = reference - numbers[rank]
    ranks = tuple(
        replace(each, journal=_shifted(journals[each.rank], shifts[each.rank])) if each.rank in shifts else each
        for each in job.ranks
    )
    return replace(job, ranks=ranks)


def _last_numbers(job: JobSnapshot, names: set[str]) -> list[tuple[str, dict[int, int]]]:
    """(name, rank → number of its last call that completed) of each group of those names."""
    found: dict[tuple[str, tuple[int, ...]], dict[int, int]] = {}
    for each in job.ranks:
        for group in each.journal.groups if each.journal is not None else ():
            number = _last_completed(each.journal, group.name) if each.journal and group.name in names else 0
            if number:
                found.setdefault(group.key, {})[each.rank] = number
    return [(name, numbers) for (name, _), numbers in found.items()]


def _last_completed(journal: Journal, group: str) -> int:
    """The number of the group's last call that completed and that nobody completes alone, or that before the first one
    under way; 0 where there is neither."""
    calls = [call for call in journal.calls if call.group == group]
    done = [call.sequence for call in calls if call.completed and not operation(call.op).rooted]
    waiting = [call.sequence for call in calls if not call.completed]
    return min(waiting) - 1 if waiting else max(done, default=0)


def _shifted(journal: Journal, by: dict[str, int]) -> Journal:
    def moved(call: Call) -> Call:
        return replace(call, sequence=call.sequence + by[call.group]) if call.group in by else call

    return replace(journal, calls=tuple(map(moved, journal.calls)))
