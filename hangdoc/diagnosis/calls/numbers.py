"""Numbers of collectives that do not mean the same on all ranks.

Until torch 2.5 a batch of messages took a number of its group's collectives, on the ranks that took part in it. The
reader takes them out again, as long as it sees them: of a ring that has lost its oldest entries it does not know how
many there were. What completed last on one rank completed on all of them, so that is the same call.
"""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.frames.operations import operation
from hangdoc.model.journal import Call, Journal
from hangdoc.model.snapshot import JobSnapshot


def with_aligned_numbers(job: JobSnapshot) -> JobSnapshot:
    """``job`` with the calls of such groups renumbered: the last that completed has one number on all members."""
    unsure = {name for rank in job.ranks if rank.journal is not None for name in rank.journal.unsure_numbers}
    if not unsure:
        return job
    last: dict[tuple[str, tuple[int, ...]], dict[int, int]] = {}
    for rank in job.ranks:
        journal = rank.journal
        for group in journal.groups if journal is not None else ():
            if journal is not None and group.name in unsure:
                number = _last_completed(journal, group.name)
                if number:
                    last.setdefault(group.key, {})[rank.rank] = number
    shifts: dict[int, dict[str, int]] = {}
    journals = {rank.rank: rank.journal for rank in job.ranks if rank.journal is not None}
    for (name, _), numbers in last.items():
        sure = [number for member, number in numbers.items() if name not in journals[member].unsure_numbers]
        reference = max(sure or numbers.values())
        for member, number in numbers.items():
            if name in journals[member].unsure_numbers and number != reference:
                shifts.setdefault(member, {})[name] = reference - number
    ranks = (
        replace(rank, journal=_shifted(rank.journal, shifts[rank.rank]))
        if rank.journal and rank.rank in shifts
        else rank
        for rank in job.ranks
    )
    return replace(job, ranks=tuple(ranks))


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
