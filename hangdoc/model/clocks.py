"""Put the times of several hosts on one clock, where their ranks' calls prove that the clocks differ.

A collective returns on no rank before every rank has issued it. So a rank issues its call k + 1 after every other rank
has issued call k, whatever the clocks say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from hangdoc.model.journal import Call, Journal, Phase, PointToPoint
from hangdoc.model.operations import is_met_by_all
from hangdoc.model.process import ProcessExit
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

_SLACK = 10.0
"""Seconds by which calls may seem out of order though the clocks agree: on GPUs, a rank issues calls before the ones
before them have completed. Judgement."""
_LAST = 200
"""Calls of a rank that are compared, its latest: two hosts of a job are rarely further apart. Judgement."""

_Call = tuple[Any, int]
"""(what identifies the group, number of the call in it)."""
_Entry = TypeVar("_Entry", Call, PointToPoint)
Issued = Mapping[_Call, tuple[float, float]]
"""Call → (the time at which the first, and at which the last rank of a host issued it); completed ones only."""


def with_one_clock(snapshots: Sequence[JobSnapshot]) -> list[JobSnapshot]:
    """``snapshots`` with every time on the clock of the first of them, as far as their calls prove a difference.

    Example: host a issues barrier 1 and 2 at 10:00:00 and 10:00:01, host b at 10:07:00 and 10:07:01. b's clock is
    between 6 min 59 s and 7 min 1 s ahead, so 7 min are taken off all times of b.
    """
    if len(snapshots) < 2:
        return list(snapshots)
    seconds = seconds_behind([issued(snapshot) for snapshot in snapshots])
    return [moved(snapshot, behind) for snapshot, behind in zip(snapshots, seconds, strict=True)]


def seconds_behind(hosts: Sequence[Issued]) -> list[float]:
    """For each host the seconds to add to its times, so that all are on the clock of the first."""
    known: dict[_Call, tuple[float, float]] = {}
    found = []
    for own in hosts:
        behind = _seconds_behind(known, own) if known else 0.0
        found.append(behind)
        known |= {call: (first + behind, last + behind) for call, (first, last) in own.items() if call not in known}
    return found


def taken_with(snapshot: JobSnapshot, other: JobSnapshot) -> JobSnapshot:
    """``snapshot``, which was taken at the same moment as ``other``, with its times on the clock of ``other``.

    Clocks that agree to some seconds are left alone: neither look took no time.
    """
    return moved(snapshot, seconds_between(snapshot.taken, other.taken))


def seconds_between(taken: float, other: float) -> float:
    """For two looks at one moment the seconds to add to the times of the first; 0 where the clocks may agree."""
    behind = other - taken
    return behind if _SLACK < abs(behind) < float("inf") else 0.0


def issued(snapshot: JobSnapshot) -> dict[_Call, tuple[float, float]]:
    """When the ranks of a host issued their latest calls."""
    found: dict[_Call, tuple[float, float]] = {}
    for rank in snapshot.ranks:
        for call, at in _calls(rank.journal):
            first, last = found.get(call, (at, at))
            found[call] = (min(first, at), max(last, at))
    return found


def _calls(journal: Journal | None) -> Iterable[tuple[_Call, float]]:
    if journal is None:
        return
    members = {group.name: group.members for group in journal.groups}
    for call in journal.calls[-_LAST:]:
        if call.completed and call.created_ns and is_met_by_all(call.op):
            yield ((call.group, members.get(call.group, ())), call.sequence), call.created_ns / 1e9


def _seconds_behind(known: Issued, own: Issued) -> float:
    """How many seconds to add to the times of ``own``; 0 where the clocks may agree, or nothing can be proved."""
    least, most = float("-inf"), float("inf")
    for (group, number), (first, last) in own.items():
        following = known.get((group, number + 1))
        before = known.get((group, number - 1))
        if following is not None:
            most = min(most, following[0] - last)
        if before is not None:
            least = max(least, before[1] - first)
    if least == float("-inf") or most == float("inf") or least > most + 2 * _SLACK:
        return 0.0
    if least <= _SLACK and most >= -_SLACK:
        return 0.0
    return (least + most) / 2


def moved(snapshot: JobSnapshot, seconds: float) -> JobSnapshot:
    """``snapshot`` with its times so many seconds later."""
    if not seconds:
        return snapshot
    ranks = tuple(_rank_moved(rank, seconds) for rank in snapshot.ranks)
    return replace(snapshot, taken=snapshot.taken + seconds, ranks=ranks)


def _rank_moved(rank: RankSnapshot, seconds: float) -> RankSnapshot:
    """The times of a rank that are compared with another host's, or with its own such ones: of its calls, of what it
    tested between them, and of its end."""
    process = rank.process
    if process is not None and process.taken:
        shift = round(seconds * 1e9)
        taken = tuple(replace(each, at_ns=each.at_ns + shift) for each in process.taken)
        caught = tuple(replace(each, at_ns=each.at_ns + shift) for each in process.caught)
        branches = tuple(replace(b, since_ns=b.since_ns + shift) if b.since_ns else b for b in process.branches)
        process = replace(process, branches=branches, taken=taken, caught=caught)
    return replace(
        rank,
        process=process,
        journal=_journal_moved(rank.journal, round(seconds * 1e9)) if rank.journal is not None else None,
        exit=_exit_moved(rank.exit, seconds) if rank.exit is not None else None,
    )


def _journal_moved(journal: Journal, nanoseconds: int) -> Journal:
    def later(at: int) -> int:
        return at + nanoseconds if at else 0

    def moved_entry(entry: _Entry) -> _Entry:
        return replace(
            entry,
            created_ns=later(entry.created_ns),
            started_ns=later(entry.started_ns),
            completed_ns=later(entry.completed_ns),
        )

    def moved_phase(phase: Phase) -> Phase:
        return replace(phase, begun_ns=later(phase.begun_ns), ended_ns=later(phase.ended_ns))

    return replace(
        journal,
        calls=tuple(map(moved_entry, journal.calls)),
        point_to_points=tuple(map(moved_entry, journal.point_to_points)),
        phases=tuple(map(moved_phase, journal.phases)),
    )


def _exit_moved(end: ProcessExit, seconds: float) -> ProcessExit:
    return replace(end, at=end.at + seconds, lived_at=None if end.lived_at is None else end.lived_at + seconds)
