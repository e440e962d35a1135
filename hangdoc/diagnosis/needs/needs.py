"""What each rank needs, by what its thread does and by what stands at its line, and of whom.

Example: rank 2 polls `while not self.path.exists():`, ranks 0 and 1 wait in an all_reduce for rank 2 → rank 2 needs a
file, of rank 0 or of rank 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.needs.graph import NeedGraph
from hangdoc.diagnosis.needs.need import AMONG_RANKS, Need, NeedKind, Reach, Waiter
from hangdoc.diagnosis.needs.resources import Seen, polls, seen_on
from hangdoc.diagnosis.needs.shared import Shared, Waiting, shared_of
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.state.activity import own_store_call
from hangdoc.diagnosis.state.process import descendants
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import GONE, ActivityKind
from hangdoc.model.process import ProcessKey

_BY_ACTIVITY = {
    ActivityKind.IN_COLLECTIVE: (NeedKind.JOIN, Reach.RANKS),
    ActivityKind.SEND: (NeedKind.SEND, Reach.RANKS),
    ActivityKind.RECV: (NeedKind.RECEIVE, Reach.RANKS),
    ActivityKind.STORE_WAIT: (NeedKind.KEY, Reach.JOB),
    ActivityKind.REMOTE_CALL: (NeedKind.ANSWER, Reach.JOB),
    ActivityKind.EVENT_LOOP: (NeedKind.EVENT, Reach.OWN),
    ActivityKind.WAITING_FOR_CHILD: (NeedKind.END, Reach.OWN),
    ActivityKind.WAITING_FOR_WORKER: (NeedKind.ITEM, Reach.OWN),
    ActivityKind.LOCK: (NeedKind.EVENT, Reach.OWN),
    ActivityKind.FILE_LOCK: (NeedKind.LOCK, Reach.JOB),
    ActivityKind.PIPE: (NeedKind.ITEM, Reach.OWN),
    ActivityKind.SHUTTING_DOWN: (NeedKind.END, Reach.OWN),
}
"""What a rank needs that does this, and of whom, where its line shows nothing; OUTSIDE for the others."""
_STOPPED = GONE | {ActivityKind.STOPPED}
_STREAMS = ("socket:", "pipe:")


class Needs:
    """Of one job."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._seen: dict[object, Seen | None] = {}

    @cached_property
    def program(self) -> Program:
        """The job's."""
        return self._case.program

    @cached_property
    def by_rank(self) -> Mapping[int, Need]:
        """Rank → what its main thread needs; a rank that is gone needs nothing."""
        given = {rank: each for each in self.shared for rank in each.waiting}
        known = {wait.waiter: wait for wait in self._case.graph.waits}
        found = {}
        for rank, (kind, reach, seen) in self._kinds.items():
            shared, wait = given.get(rank), known.get(rank)
            either = shared is not None and bool(shared.could) and (wait is None or not wait.on or shared.asked)
            on = shared.could if either and shared is not None else wait.on if wait is not None else ()
            identity = " ".join(self.keys(rank) or (seen.objects if seen is not None else ()))
            identity = identity or self._case.activities[rank].text
            by = wait.source if wait is not None else "stack"
            found[rank] = Need(kind, identity, Waiter(rank), on, either, reach, by)
        return found

    @cached_property
    def graph(self) -> NeedGraph:
        """Who waits for whom."""
        movable = frozenset(r for r, a in self._case.activities.items() if a.kind not in _STOPPED)
        return NeedGraph(tuple(need for need in self.by_rank.values() if need.on), movable)

    def seen(self, rank: int) -> Seen | None:
        """What the line of its wait shows; None where no row fits, and of a rank that is gone."""
        return self._kinds[rank][2] if rank in self._kinds else None

    def holders(self, rank: int) -> tuple[int, ...]:
        """The other ranks whose processes hold the lock of the file that it waits for, as the kernel says."""
        host, process = self._case.ranks[rank].host, self._case.ranks[rank].process
        files = process.blocking_files if process is not None else ()
        locks = (file for file in files if not file.target.startswith(_STREAMS))
        held = {self._owners.get(ProcessKey(host, pid)) for file in locks for pid in file.peers}
        return tuple(sorted(owner for owner in held if owner is not None and owner != rank))

    def keys(self, rank: int) -> tuple[str, ...]:
        """The store keys that it waits for and that are not there; () where no probe has seen which."""
        journal, store = self._case.ranks[rank].journal, self._case.job.store
        there = store.there if store is not None else ()
        waits = journal.store_waits if journal is not None else ()
        return tuple(dict.fromkeys(key for wait in waits for key in wait.keys if key not in there))

    @cached_property
    def _kinds(self) -> Mapping[int, tuple[NeedKind, Reach, Seen | None]]:
        activities = self._case.activities.items()
        found = {rank: self._kind(rank, activity) for rank, activity in activities if activity.kind not in GONE}
        # Of a stream whose other end is not seen, those who wait at the same line for the same thing show whose it is.
        of_job = {seen.line for _, reach, seen in found.values() if seen is not None and reach == Reach.JOB}
        for rank, (kind, reach, seen) in found.items():
            if reach == Reach.OUTSIDE and seen is not None and seen.line in of_job:
                found[rank] = kind, Reach.JOB, seen
        return found

    def _kind(self, rank: int, activity: Activity) -> tuple[NeedKind, Reach, Seen | None]:
        kind, reach = _BY_ACTIVITY.get(activity.kind, (NeedKind.OUTSIDE, Reach.OUTSIDE))
        if kind in AMONG_RANKS:
            return kind, reach, None
        if activity.kind == ActivityKind.STORE_WAIT and not own_store_call(activity.stack):
            return NeedKind.COUNT, Reach.RANKS, None
        key = tuple((frame.file, frame.line) for frame in activity.stack), activity.kind
        if key not in self._seen:
            self._seen[key] = seen_on(self.program, activity.stack, activity.kind)
        seen = self._seen[key]
        if seen is not None:
            return seen.resource.need, self._reach(rank, seen), seen
        if activity.kind == ActivityKind.SLEEPING and polls(self.program, activity.stack):
            return NeedKind.PREDICATE, Reach.JOB, None
        return kind, reach, None

    def _reach(self, rank: int, seen: Seen) -> Reach:
        """Of whom it is."""
        snapshot = self._case.ranks[rank]
        process = snapshot.process
        if seen.resource.need == NeedKind.OUTSIDE:
            return Reach.OUTSIDE
        if seen.own or process is None:
            return Reach.OWN if seen.own else Reach.JOB
        if seen.resource.need == NeedKind.LOCK and self.holders(rank):
            return Reach.RANKS
        streams = [file for file in process.blocking_files if file.target.startswith(_STREAMS)]
        peers = {ProcessKey(snapshot.host, pid) for file in streams for pid in file.peers}
        below = {ProcessKey(snapshot.host, child.pid) for child in descendants(process)}
        if peers & below and not self._asked_by_others(rank, peers & below):
            return Reach.OWN
        if seen.resource.of_stream and streams and peers.isdisjoint(self._owners):
            return Reach.JOB if any(" listening on " in file.target for file in streams) else Reach.OUTSIDE
        return Reach.JOB

    def _asked_by_others(self, rank: int, processes: set[ProcessKey]) -> bool:
        """True if other ranks wait for one of these processes."""
        return any(not processes.isdisjoint(peers) for other, peers in self._peers.items() if other != rank)

    @cached_property
    def _peers(self) -> Mapping[int, frozenset[ProcessKey]]:
        """Rank → the processes at the other ends of what its main thread waits on."""
        found = {}
        for rank, snapshot in self._case.ranks.items():
            files = snapshot.process.blocking_files if snapshot.process is not None else ()
            streams = (file for file in files if file.target.startswith(_STREAMS))
            found[rank] = frozenset(ProcessKey(snapshot.host, pid) for file in streams for pid in file.peers)
        return found

    @cached_property
    def _owners(self) -> Mapping[ProcessKey, int]:
        """Process → rank, children included."""
        found = {}
        for rank, each in self._case.ranks.items():
            for process in (each.process, *descendants(each.process)) if each.process is not None else ():
                found[ProcessKey(each.host, process.pid)] = rank
        return found

    @cached_property
    def shared(self) -> tuple[Shared, ...]:
        """What ranks wait for that is no call, and that others of the job have to give."""
        waiting: dict[object, tuple[Seen | None, list[int], set[int]]] = {}
        snapshots = self._case.ranks.values()
        ranks = {ProcessKey(each.host, each.process.pid) for each in snapshots if each.process is not None}
        for rank, (_, reach, seen) in self._kinds.items():
            if reach != Reach.JOB:
                continue
            servants = self._peers[rank] - ranks  # a child serves it, such as a manager's
            where = self._case.activities[rank].where
            key = servants or (seen.line if seen is not None else where and (where.file, where.line))
            _, members, serving = waiting.setdefault(key, (seen, [], set()))
            members.append(rank)
            serving.update(self._owners[each] for each in servants if each in self._owners)
        return tuple(
            shared_of(self._case, self.program, Waiting(seen, tuple(members), frozenset(serving)))
            for seen, members, serving in waiting.values()
        )
