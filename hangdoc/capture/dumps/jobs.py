"""Which of the dumps in a folder are of one job. Replicas that run side by side have ranks of their own, and so have
the runs of a job that is started again: a rank that is there twice is of two jobs, unless one dump is a copy of the
other.
"""

from __future__ import annotations

import os.path
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from hangdoc.capture.dumps.local_ranks import Told, with_ranks_in_job, without_number
from hangdoc.capture.dumps.membership import Member, can_be_of_one_run, end_of, newest_run

MOST_JOBS = 16
"""That are told apart in one folder, the newest; chosen by hand."""


@dataclass(slots=True)
class DumpedJob:
    """The dumps of one job."""

    told: Told
    """What is known of the ranks' numbers on their hosts."""
    ranks: dict[int, Member] = field(default_factory=dict)
    """Rank → its dump."""
    twice: list[Member] = field(default_factory=list)
    """Others of the same ranks: copies, older ones, those of another backend."""

    @property
    def members(self) -> list[Member]:
        """One dump of each rank, in their order."""
        return [self.ranks[rank] for rank in sorted(self.ranks)]


def jobs_in(members: list[Member]) -> tuple[list[DumpedJob], list[Member]]:
    """(the jobs, the newest first; the dumps that are left out). What few dumps are left of an earlier run tell nothing
    of it."""
    now, rest = newest_run(members)
    found, left = _side_by_side(with_ranks_in_job(now)), []
    for _ in range(MOST_JOBS):
        now, rest = newest_run(rest)
        for job in _side_by_side(with_ranks_in_job(now)):
            size = _size(job.members) or len(found[0].ranks)
            if 2 * len(job.ranks) > size:
                found.append(job)
            else:
                left += [*job.members, *job.twice]
    left += [*rest, *(member for job in found[MOST_JOBS:] for member in job.members)]
    return found[:MOST_JOBS], left


def names_of(jobs: list[DumpedJob]) -> list[str]:
    """What to call each: the folder of its dumps, or what their names have in common; '' where there is one job alone.

    Example: replica_0/rank_0 and replica_0/rank_1, replica_1/rank_0 → 'replica_0', 'replica_1'.
    """
    if len(jobs) < 2:
        return [""] * len(jobs)
    folders = [os.path.commonpath([_folder(m) or "." for m in job.members]) if job.ranks else "" for job in jobs]
    return [
        folder if folder not in ("", ".") and folders.count(folder) == 1 else _label(job.members[0])
        for folder, job in zip(folders, jobs, strict=True)
    ]


def _side_by_side(told: Told) -> list[DumpedJob]:
    """The jobs of one time; at least one, which may have no dump whose rank is known."""
    jobs: list[DumpedJob] = []
    for piece in sorted(_pieces(told.members, 0), key=_newest, reverse=True):
        same = next((job for job in jobs if _has_it_already(job, piece)), None)
        if same is not None:
            same.twice += piece
            continue
        job = next((job for job in jobs if _belongs_to(job, piece)), None)
        if job is None:
            job = DumpedJob(told)
            jobs.append(job)
        for member in sorted(piece, key=lambda one: (-end_of(one), one.file.path)):
            if job.ranks.setdefault(member.rank, member) is not member:
                job.twice.append(member)
    return jobs or [DumpedJob(told)]


def _pieces(members: list[Member], depth: int) -> list[list[Member]]:
    """The dumps, in parts in which no rank is there twice: by the folders from the top, or else by what is in the names
    besides the rank."""
    if len({member.rank for member in members}) == len(members):
        return [members] if members else []
    ways: tuple[Callable[[Member], str], ...] = (lambda member: _part(_folder(member), depth), _label)
    deeper = any(_folder(member).count("/") >= depth and _folder(member) for member in members)
    parts: dict[str, list[Member]] = defaultdict(list)
    for member in members:
        parts[ways[0 if deeper else 1](member)].append(member)
    if not deeper:
        return list(parts.values())
    return [piece for part in parts.values() for piece in _pieces(part, depth + 1)]


def _folder(member: Member) -> str:
    return member.file.path.rpartition("/")[0]


def _part(folder: str, depth: int) -> str:
    parts = folder.split("/")
    return parts[depth] if depth < len(parts) else ""


def _label(member: Member) -> str:
    """The path without the rank: replica1_rank_3 → replica1_rank_."""
    return without_number(member.file.path, member.number if member.number >= 0 else member.rank)


def _newest(piece: list[Member]) -> tuple[bool, int, int]:
    """A rank may have dumps of two backends: the one that names the members of its groups says more (NCCL's, not
    gloo's)."""
    return _size(piece) > 0, max(map(end_of, piece)), len(piece)


def _size(members: list[Member]) -> int:
    """How many ranks their job has, as far as their groups name the members."""
    return max((len(group.members) for member in members for group in member.dump.groups), default=0)


def _has_it_already(job: DumpedJob, piece: list[Member]) -> bool:
    """True if each rank of the piece has a dump in the job that is the same, newer, or one that says more."""
    pairs = [(job.ranks.get(member.rank), member) for member in piece]
    less = not _size(piece) and _size(job.members) > 0
    same = all(other is not None and (less or _is_same(other, member)) for other, member in pairs)
    return same and (less or any(member.dump.first_ns for member in piece))


def _is_same(newer: Member, member: Member) -> bool:
    """True if the second is a copy of the first, or an older dump of the same process."""
    one, other = newer.dump, member.dump
    if (one.first_ns, one.latest_ns, one.own, one.groups) == (other.first_ns, other.latest_ns, other.own, other.groups):
        return True
    return newer.file.series == member.file.series and one.first_ns == other.first_ns


def _belongs_to(job: DumpedJob, piece: list[Member]) -> bool:
    """True if the piece has other ranks of the job: those of another host, say."""
    if any(member.rank in job.ranks for member in piece) or _size(job.members) != _size(piece):
        return False
    return all(can_be_of_one_run(member, job.members) for member in piece)
