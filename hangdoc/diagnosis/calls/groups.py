"""Who belongs to the groups of a job. Every journal lists the members of the same few groups, thousands of numbers
each: they are compared once, and from then on recognized at a glance."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from hangdoc.model.journal import Journal, ProcessGroup
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

_MOST_RANKS = 1 << 17
"""That a saved job is believed to have: its size is what the file says."""


class Members(tuple[int, ...]):
    """The global ranks of a group, as a key that is hashed only once; each rank of thousands looks itself up in it."""

    @cached_property
    def _set(self) -> frozenset[int]:
        return frozenset(self)

    def __contains__(self, rank: object) -> bool:
        return rank in self._set

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        return self._hash


def with_shared_members(job: JobSnapshot) -> JobSnapshot:
    """``job`` with one object for the members of a group, whoever lists them."""
    known: dict[tuple[int, ...], Members] = {}
    by_object: dict[int, Members] = {}

    def shared(members: tuple[int, ...]) -> Members:
        found = by_object.get(id(members))
        if found is None:
            found = by_object[id(members)] = known.setdefault(members, Members(members))
        return found

    rewritten_groups: dict[int, tuple[ProcessGroup, ...]] = {}

    def rewritten(journal: Journal) -> Journal:
        groups = rewritten_groups.get(id(journal.groups))
        if groups is None:
            groups = tuple(replace(group, members=shared(group.members)) for group in journal.groups)
            rewritten_groups[id(journal.groups)] = groups
        return replace(journal, groups=groups)

    ranks = (replace(rank, journal=rewritten(rank.journal)) if rank.journal else rank for rank in job.ranks)
    return replace(job, ranks=tuple(ranks))


_ELSEWHERE = "elsewhere"


def with_every_member(job: JobSnapshot) -> JobSnapshot:
    """``job`` with a placeholder for each rank that a group names, or the world size promises, and that is not in it:
    it runs on another host, or its dump is missing."""
    known = {rank.rank for rank in job.ranks}
    groups = {group.members for rank in job.ranks if rank.journal is not None for group in rank.journal.groups}
    named = {member for members in groups for member in members}
    if known:
        named.update(range(min(job.world_size or 0, _MOST_RANKS)))
    if named <= known:
        return job
    unseen = [RankSnapshot(rank=member, host="", identity=_ELSEWHERE) for member in named - known]
    return replace(job, ranks=tuple(sorted((*job.ranks, *unseen), key=lambda rank: rank.rank)))
