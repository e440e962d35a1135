"""The journals of dumps that were read on several hosts → those of one run, as if all dumps had lain in one folder."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hangdoc.capture.dumps.digest import CALLS, MESSAGES
from hangdoc.capture.dumps.find_files import DumpFile
from hangdoc.capture.dumps.fold import Body, Columns, Dump
from hangdoc.capture.dumps.membership import Member, newest_run, numbers_of
from hangdoc.model.journal import Journal
from hangdoc.model.operations import operation
from hangdoc.model.snapshot import Unavailable
from hangdoc.model.wording import name_ranks

_Numbers = dict[tuple[str, tuple[int, ...]], tuple[int, int]]
"""Group → (number of the last call completed with all by any rank, the lowest number of any rank's last call)."""


@dataclass(frozen=True, slots=True)
class HostsRun:
    """``journals``: rank → its calls. ``hosts``: those that have dumps of this run."""

    journals: dict[int, Journal]
    hosts: frozenset[str]
    unavailable: tuple[Unavailable, ...] = ()


def newest_run_of(parts: Sequence[tuple[str, int, Journal]]) -> HostsRun:
    """Of (host, rank, journal) those of the newest run, each rank once; notes on what was left out.

    A dump that two hosts show, as they share its folder, counts once.
    """
    known: dict[tuple[int, int, int, int], Member] = {}
    journals: dict[int, Journal] = {}
    for host, rank, journal in parts:
        member = _member(host, rank, journal)
        key = (rank, member.dump.first_ns, member.dump.latest_ns, journal.written_ns)
        if key not in known:
            known[key] = member
            journals[id(member)] = journal
    run, left = newest_run(list(known.values()))
    chosen: dict[int, Member] = {}
    beside: list[Member] = []
    reached: _Numbers = {}
    for part in _newest_host_first(run):
        if chosen and not _fits(part, chosen, reached):
            beside += part
            continue
        for member in part:
            chosen[member.rank] = member
            for group, (done, last) in numbers_of(member).items():
                most, least = reached.get(group, (done, last))
                reached[group] = max(most, done), min(least, last)
    return HostsRun(
        {rank: journals[id(chosen[rank])] for rank in sorted(chosen)},
        frozenset(_host(member) for member in chosen.values()),
        (*_left_out(left, "of another run"), *_left_out(beside, "of another job, or copies")),
    )


def _newest_host_first(members: Sequence[Member]) -> list[list[Member]]:
    """The dumps of each host, of each rank the newest."""
    hosts: dict[str, dict[int, Member]] = {}
    for member in sorted(members, key=lambda each: each.dump.latest_ns):
        hosts.setdefault(_host(member), {})[member.rank] = member
    parts = [list(ranks.values()) for ranks in hosts.values()]
    return sorted(parts, key=lambda part: (-max(m.dump.latest_ns for m in part), part[0].file.path))


def _fits(part: Sequence[Member], chosen: Mapping[int, Member], reached: _Numbers) -> bool:
    """True if a host's dumps can be of the run that was chosen: other ranks, a job of the same size, and nobody has
    completed a call with all that another one never came to."""
    if any(member.rank in chosen for member in part) or _size(part) != _size(chosen.values()):
        return False
    for member in part:
        for group, (done, last) in numbers_of(member).items():
            most, least = reached.get(group, (done, last))
            if done > least or most > last:
                return False
    return True


def _size(members: Iterable[Member]) -> int:
    return max((len(group.members) for member in members for group in member.dump.groups), default=0)


def _left_out(members: Sequence[Member], why: str) -> list[Unavailable]:
    by_host: dict[str, list[int]] = {}
    for member in members:
        by_host.setdefault(_host(member), []).append(member.rank)
    remedy = "diagnose the folder of that host by itself, or put the dumps of one run of all hosts into one folder"
    return [
        Unavailable("journal", f"dumps of {name_ranks(sorted(ranks))} on {host} were left out: they are {why}", remedy)
        for host, ranks in sorted(by_host.items())
    ]


def _host(member: Member) -> str:
    return member.file.path.rpartition("/")[0]


def _member(host: str, rank: int, journal: Journal) -> Member:
    """What ``membership`` asks of a dump, told by its journal."""
    times = [*(each.created_ns for each in journal.calls), *(each.created_ns for each in journal.point_to_points)]
    issued = [time for time in times if time]
    names = tuple(dict.fromkeys((*(group.name for group in journal.groups), *(c.group for c in journal.calls))))
    numbers: dict[int, tuple[int, int]] = {}
    for call in journal.calls:
        at = names.index(call.group)
        done, last = numbers.get(at, (0, 0))
        met = call.sequence if call.completed and not operation(call.op).rooted else 0
        numbers[at] = max(done, met), max(last, call.sequence)
    nothing = array("q")
    body = Body(Columns(CALLS, nothing, ()), Columns(MESSAGES, nothing, ()), (), (), (), (), numbers)
    dump = Dump(
        groups=tuple(replace(group, created_at=-1) for group in journal.groups),
        names=names,
        counters=journal.counters,
        status=journal.status,
        forgotten=journal.forgotten,
        first_ns=min(issued, default=0),
        latest_ns=journal.latest_ns,
        moved_ns=journal.moved_ns,
        body=body,
        own=(),
        active_only=journal.active_only,
        with_frames=False,
    )
    return Member(rank, dump, DumpFile(f"{host}/dump_{rank}", 0, journal.written_ns / 1e9))
