"""One host's snapshot as a digest of some kilobytes, and the pieces that it leaves out (``pieces``)."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from hangdoc.model.clocks import issued
from hangdoc.model.encode import value_to_bytes
from hangdoc.model.journal import Call, Journal, PointToPoint, ProcessGroup
from hangdoc.model.network import Connection
from hangdoc.model.process import Frame, Process, ProcessState, Stack, Thread
from hangdoc.model.snapshot import HostSnapshot, JobSnapshot, RankSnapshot, Unavailable
from hangdoc.sidecar.meeting.pieces import (
    EVERY,
    LAST,
    REFERENCE,
    SAME,
    SMALL_GROUP,
    Digest,
    History,
    Part,
    Piece,
    Pieces,
    identity,
)
from hangdoc.sidecar.meeting.recorded_tests import Folded, Ring, without_tests

LARGEST_DIGEST = 48 << 10
"""Bytes, compressed; a larger one is sent without what says least."""
_MOST_SOCKETS = 256
"""Quiet connections, and listening ports, of a host. Judgement: those that several ranks have in common come first."""
_MOST_TROUBLED = 1024
"""Connections with unsent or unanswered data. Judgement."""
_MOST_TIMES = 64
"""Calls of a group whose times are in the digest. Judgement."""
_MOST_MODULES = 200
"""Of a host, the first ones: 32 bytes each, and more where their texts are sent."""
_MOST_GROUPS = 8
"""Groups of which."""


@dataclass(frozen=True, slots=True)
class Digested:
    """A host's digest, and what it left out."""

    digest: Digest
    known: Mapping[str, Piece]

    def written(self) -> bytes:
        """The digest for the lead."""
        return value_to_bytes(self.digest, sparse=True)

    def pieces(self, wanted: Iterable[str]) -> bytes:
        """Those that the lead asks for, each once, as far as they are known."""
        found = [self.known[name] for name in dict.fromkeys(wanted) if name in self.known]
        rings = [piece for piece in found if isinstance(piece, Ring)]
        stacks: list[Any] = [piece for piece in found if isinstance(piece, tuple) and _is_stack(piece)]
        members: list[Any] = [piece for piece in found if isinstance(piece, tuple) and not _is_stack(piece)]
        parts = [piece for piece in found if isinstance(piece, Part)]
        return value_to_bytes(Pieces(tuple(stacks), tuple(members), tuple(parts), tuple(rings)))


def digested(job: JobSnapshot) -> Digested:
    """The digest of what a host shows. One of more than ``LARGEST_DIGEST`` is made again, without idle threads and with
    no text of whole modules, and then without what the ranks recorded of their tests."""
    found = _digested(job)
    if len(found.written()) > LARGEST_DIGEST:
        bare = tuple(module.bare() for module in job.modules)
        job = replace(_without_idle_threads(job), modules=bare)
        found = _digested(job)
    if found.digest.recorded and len(found.written()) > LARGEST_DIGEST:
        found = _digested(without_tests(job))
    return found


def _digested(job: JobSnapshot) -> Digested:
    folding, tests = _Folding(), Folded()
    launcher = folding.fold(job.launcher)
    shown = [rank for rank in job.ranks if not _is_only_expected(rank)]
    ranks = [folding.rank(tests.rank(rank, index, folding.name), index) for index, rank in enumerate(shown)]
    expected = []
    for first, count in _alike(job.ranks):
        expected.append((len(ranks), first.rank, count))
        ranks.append(first)
    hosts, notes = _with_fewer_sockets(job.hosts)
    stripped = replace(
        job,
        ranks=tuple(ranks),
        hosts=hosts,
        launcher=launcher,
        modules=job.modules[:_MOST_MODULES],
        unavailable=(*job.unavailable, *notes),
    )
    digest = Digest(
        stripped,
        stacks=tuple(folding.stacks),
        members=tuple(folding.members),
        parts=tuple(folding.parts),
        histories=tuple(folding.histories),
        expected=tuple(expected),
        issued=tuple(_times(job)),
        tests=tests.tests,
        recorded=tuple(tests.ranks),
    )
    return Digested(digest, folding.known)


def _is_only_expected(rank: RankSnapshot) -> bool:
    return rank.process is None and rank.exit is None and rank.journal is None


def _alike(ranks: Iterable[RankSnapshot]) -> Iterable[tuple[RankSnapshot, int]]:
    """(the first of some ranks that are only expected, how many there are of them one after another)."""
    first, count = None, 0
    for rank in filter(_is_only_expected, ranks):
        if first is not None and replace(first, rank=rank.rank) == rank and rank.rank == first.rank + count:
            count += 1
            continue
        if first is not None:
            yield first, count
        first, count = rank, 1
    if first is not None:
        yield first, count


class _Folding:
    """Takes the pieces out of the ranks of one host. ``stacks``, ``members``, ``parts``: identity → row."""

    def __init__(self) -> None:
        self.known: dict[str, Piece] = {}
        self.stacks: dict[str, int] = {}
        self.members: dict[str, int] = {}
        self.parts: dict[str, int] = {}
        self.histories: list[History] = []
        self._names: dict[int, tuple[Piece, str]] = {}
        """By identity in memory, with the object that has it: journals repeat the same ones."""
        self._threads: Mapping[int, int] = {}
        self._since: dict[int, int] = {}
        """Row of a part at the end of a history → since when the rank waits whose part it is."""

    def rank(self, rank: RankSnapshot, index: int) -> RankSnapshot:
        """The rank without its pieces."""
        self._threads = _numbered_threads(rank)
        journal = rank.journal
        if journal is not None:
            self.histories.append(self._history(rank.rank, index, journal))
            journal = self._journal(journal)
        return replace(
            rank,
            process=self.fold(rank.process),
            exit=self.fold(rank.exit),
            first_store=self._stack(rank.first_store),
            journal=journal,
        )

    # One branch for each kind of value.
    def fold(self, value: Any) -> Any:
        """A value without its stacks, and with other numbers for threads."""
        if isinstance(value, tuple):
            if _is_stack(value):
                return self._stack(value)
            return tuple(map(self.fold, value)) if any(map(dataclasses.is_dataclass, value)) else value
        if isinstance(value, type) or not dataclasses.is_dataclass(value):
            return value
        changed: dict[str, Any] = {}
        for field in dataclasses.fields(value):
            before = getattr(value, field.name)
            if isinstance(before, tuple) or dataclasses.is_dataclass(before):
                changed[field.name] = self.fold(before)
        if isinstance(value, Thread) and value.python_id is not None:  # a native thread stays one
            changed["python_id"] = self._threads.get(value.python_id, value.python_id)
        if isinstance(value, Process) and len(changed["looks"]) == 2:
            changed["looks"] = _without_same(*changed["looks"])
        made: Any = value
        return replace(made, **changed) if changed else made

    def _journal(self, journal: Journal) -> Journal:
        return replace(
            journal,
            calls=(),
            point_to_points=(),
            stacks=(),
            groups=tuple(self._group(group, journal) for group in journal.groups),
            store_waits=tuple(
                replace(
                    wait, stack=self._row_of_stack(journal, wait.stack), thread_id=self._threads.get(wait.thread_id, 0)
                )
                for wait in journal.store_waits
            ),
            failed_at=self._stack(journal.failed_at),
            handled_at=self._stack(journal.handled_at),
        )

    def _group(self, group: ProcessGroup, journal: Journal) -> ProcessGroup:
        members = group.members
        if len(members) > SMALL_GROUP:
            members = (-1, self._row(members, self.members))
        return replace(group, members=members, created_at=self._row_of_stack(journal, group.created_at))

    def _history(self, rank: int, index: int, journal: Journal) -> History:
        names = list(dict.fromkeys(group.name for group in journal.groups))
        places = {group.name: {member: at for at, member in enumerate(group.members)} for group in journal.groups}
        entries = list(_by_time(journal))
        since = min((e.created_ns for e in entries if not e.completed and e.created_ns), default=0)
        rows: list[int] = []
        called = []
        for start, end in _cuts(entries):
            part, used = self._part(journal, entries[start:end], rank, places, last=end == len(entries))
            names += [name for name in used if name not in names]
            rows.append(self._row(part, self.parts))
            called.append(tuple(map(names.index, used)))
            if part.last and since < self._since.get(rows[-1], since + 1):
                self._since[rows[-1]] = since
                self.known[self.name(part)] = part  # with the times of the rank that waits longest
        return History(index, tuple(rows), tuple(names), tuple(called), since)

    def _part(
        self,
        journal: Journal,
        entries: Sequence[Call | PointToPoint],
        rank: int,
        places: Mapping[str, Mapping[int, int]],
        *,
        last: bool,
    ) -> tuple[Part, list[str]]:
        """(the entries as a part, the groups that its numbers mean)."""
        groups: dict[str, str] = {}
        stacks: dict[str, int] = {}
        calls: list[Call] = []
        messages: list[PointToPoint] = []
        after = []
        for entry in entries:
            name = self.name(stack) if (stack := journal.stack(entry.stack)) else ""
            common: dict[str, Any] = {
                "group": groups.setdefault(entry.group, str(len(groups))),
                "stack": stacks.setdefault(name, len(stacks)) if name else -1,
                "thread_id": self._threads.get(entry.thread_id, 0),
            }
            if name:
                self.stacks.setdefault(name, len(self.stacks))
            if isinstance(entry, Call):
                calls.append(replace(entry, **common))
            else:
                peer = _further_on(entry.peer, rank, places.get(entry.group, {}))
                messages.append(replace(entry, peer=peer, **common))
                after.append(len(calls))
        return Part(tuple(calls), tuple(messages), tuple(after), tuple(stacks), last), list(groups)

    def _row_of_stack(self, journal: Journal, index: int) -> int:
        stack = journal.stack(index)
        return self._row(stack, self.stacks) if stack else -1

    def _stack(self, stack: Stack) -> Stack:
        return (Frame(REFERENCE, self._row(stack, self.stacks), ""),) if stack else ()

    def _row(self, piece: Piece, rows: dict[str, int]) -> int:
        return rows.setdefault(self.name(piece), len(rows))

    def name(self, piece: Piece) -> str:
        """The identity of a piece, which is kept."""
        known = self._names.get(id(piece))
        if known is None:
            known = self._names[id(piece)] = piece, identity(piece)
            self.known.setdefault(known[1], piece)
        return known[1]


def _is_stack(value: tuple[Any, ...]) -> bool:
    return bool(value) and isinstance(value[0], Frame)


def _without_same(first: ProcessState, last: ProcessState) -> tuple[ProcessState, ProcessState]:
    """The looks; from the first one the threads are gone that are as they are at the last."""
    pairs = zip(first.threads, last.threads, strict=False)
    same = [place for place, (before, after) in enumerate(pairs) if before == after]
    if not same:
        return first, last
    gone = set(same)
    kept = [thread for place, thread in enumerate(first.threads) if place not in gone]
    return replace(first, threads=(*kept, Thread(SAME, " ".join(map(str, same)), ""))), last


# Its branches are comprehensions over whatever carries a thread's number.
def _numbered_threads(rank: RankSnapshot) -> dict[int, int]:
    """Python's number of each thread → 1 for the main thread, and so on as they appear in the history and then among
    the threads. Ranks that do the same number their threads alike."""
    looks = rank.process.looks if rank.process is not None else ()
    seen = [thread.python_id or 0 for look in looks[::-1] for thread in look.threads]
    journal = rank.journal
    found = seen[:1]
    if journal is not None:
        found += [call.thread_id for call in journal.calls]
        found += [message.thread_id for message in journal.point_to_points]
        found += [wait.thread_id for wait in journal.store_waits]
    pending = [rank.process] if rank.process is not None else []
    while pending:
        process = pending.pop(0)
        found += [thread.python_id or 0 for look in process.looks for thread in look.threads]
        pending += process.children
    numbers = {0: 0}
    for thread in found:
        numbers.setdefault(thread, len(numbers))
    return numbers


def _by_time(journal: Journal) -> Iterable[Call | PointToPoint]:
    """Calls and messages as they were issued; each kind stays in its own order."""
    calls, messages = list(journal.calls), list(journal.point_to_points)
    at = 0
    for message in messages:
        while at < len(calls) and calls[at].created_ns <= message.created_ns:
            yield calls[at]
            at += 1
        yield message
    yield from calls[at:]


def _cuts(entries: Sequence[Call | PointToPoint]) -> list[tuple[int, int]]:
    """(start, end) of each part. The last one has at least ``LAST`` entries, if there are so many."""
    numbers = (entry.sequence if isinstance(entry, Call) else entry.op_id for entry in entries)
    ends = [at for at, number in enumerate(numbers, 1) if number and number % EVERY == 0 and len(entries) - at >= LAST]
    bounds = [0, *ends, len(entries)]
    return [(start, end) for start, end in pairwise(bounds) if end > start]


def _further_on(peer: int, rank: int, places: Mapping[int, int]) -> int:
    """How many members further on the peer is; -1 stays, and of one whose place is not known it is -2 - peer."""
    if peer < 0:
        return peer
    if peer not in places or rank not in places:
        return -2 - peer
    return (places[peer] - places[rank]) % len(places)


def _times(job: JobSnapshot) -> Iterable[tuple[str, int, int, int]]:
    """See ``Digest.issued``: the latest calls of the groups that are used most."""
    groups: dict[Any, list[tuple[int, int, int]]] = {}
    for (group, number), (first, last) in issued(job).items():
        groups.setdefault(group, []).append((number, round(first * 1e9), round(last * 1e9)))
    for (name, members), times in sorted(groups.items(), key=lambda item: -len(item[1]))[:_MOST_GROUPS]:
        key = f"{name} {identity(members)[:8]}"
        yield from ((key, *each) for each in sorted(times)[-_MOST_TIMES:])


def _with_fewer_sockets(hosts: Sequence[HostSnapshot]) -> tuple[tuple[HostSnapshot, ...], list[Unavailable]]:
    """The hosts without most of their quiet connections. A job's gloo connects every rank with every other one."""
    found, notes = [], []
    for host in hosts:
        troubled = [end for end in host.connections if _is_troubled(end)]
        if len(troubled) > _MOST_TROUBLED:
            why = f"{len(troubled) - _MOST_TROUBLED} more connections of {host.name} have unanswered data"
            notes.append(Unavailable("sockets", why))
        shared = Counter((end.remote_address, end.remote_port) for end in host.connections)
        quiet = [end for end in host.connections if not _is_troubled(end)]
        quiet.sort(key=lambda end: -shared[end.remote_address, end.remote_port])
        worst = sorted(troubled, key=lambda end: -end.retransmits)[:_MOST_TROUBLED]
        kept = {*worst, *quiet[:_MOST_SOCKETS]}
        connections = tuple(end for end in host.connections if end in kept)
        found.append(replace(host, connections=connections, listening=host.listening[:_MOST_SOCKETS]))
    return tuple(found), notes


def _is_troubled(end: Connection) -> bool:
    return bool(end.send_queue or end.retransmits or end.state != "ESTABLISHED")


def _without_idle_threads(job: JobSnapshot) -> JobSnapshot:
    """``job`` without threads that run no Python, sleep and have used no processor between the looks: libraries start
    them by the hundred."""
    ranks = tuple(
        replace(rank, process=_only_busy(rank.process)) if rank.process is not None else rank for rank in job.ranks
    )
    return replace(job, ranks=ranks)


def _only_busy(process: Process) -> Process:
    used: dict[int, set[float]] = {}
    for look in process.looks:
        for thread in look.threads:
            used.setdefault(thread.tid, set()).add(thread.cpu)

    def says_something(thread: Thread) -> bool:
        native = thread.python_id is None and not (thread.frames or thread.native_frames or thread.blocking_files)
        return not native or thread.state != "S" or len(used[thread.tid]) > 1

    looks = tuple(
        replace(look, threads=(*look.threads[:1], *filter(says_something, look.threads[1:]))) for look in process.looks
    )
    return replace(process, looks=looks, children=tuple(map(_only_busy, process.children)))
