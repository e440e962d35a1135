"""What the job's store says about its ranks: who has joined, and which process joined as which rank."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

from hangdoc.capture.find import rendezvous
from hangdoc.capture.find.foreign_server import foreign_server
from hangdoc.capture.find.job import Job
from hangdoc.capture.find.process_table import ProcessTable
from hangdoc.capture.find.target import RankTarget
from hangdoc.capture.read.sockets import Sockets
from hangdoc.model.snapshot import Unavailable
from hangdoc.model.store import RendezvousStore

ELSEWHERE = "elsewhere"
"""Identity of a rank in a container or on a host that this hangdoc does not see. A transport would replace it."""


@dataclass(frozen=True, slots=True)
class StoreReading:
    """A job and what its store says; ``notes`` if the store could not be read."""

    job: Job
    store: RendezvousStore | None = None
    notes: tuple[Unavailable, ...] = ()


def read_store(table: ProcessTable, job: Job) -> StoreReading:
    """Read from the job's store which ranks have joined, and as which rank each process did.

    The store overrules the launcher's numbers.
    """
    pids = set(job.pids)
    if not pids:
        return StoreReading(job)
    agents = {table[pid].ppid for pid in pids if table[pid].ppid in table and table[pid].ppid != 1}
    sockets = table.sockets([*pids, *agents])
    store_at = _store_of(job, sockets, pids)
    if store_at is None:
        return StoreReading(job)
    witness = min(pids)
    if table.network_namespace(witness) != table.network_namespace(os.getpid()):
        why = "the job lives in another network namespace"
        return StoreReading(job, None, (Unavailable("store", why, "run hangdoc inside its container"),))
    foreign = foreign_server(table, job, store_at, sockets)
    if foreign is not None and foreign.pid is not None:
        # Its keys are of the other job's ranks.
        return StoreReading(job, RendezvousStore(store_at.address, store_at.port, foreign=foreign))
    answer = rendezvous.read(store_at, sockets, witness)
    if isinstance(answer, Unavailable):
        unread = RendezvousStore(store_at.address, store_at.port, foreign=foreign) if foreign is not None else None
        return StoreReading(job, unread, (answer,))
    content, ranks = answer
    if ranks.keys() == pids:
        job = _renumbered(job, ranks)
    known = {target.pid: target.rank for target in job.targets if target.pid is not None}
    return StoreReading(job, replace(rendezvous.described(store_at, content, sockets, known), foreign=foreign))


def _store_of(job: Job, sockets: Sockets, pids: set[int]) -> rendezvous.Meeting | None:
    """Where the job's processes met: at an address of their environments, or else where their connections lead."""
    addresses = {(env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", "")) for env in map(_variables, job.targets)}
    found = [
        meeting
        for address, port in sorted(addresses)
        if port.isdigit() and (meeting := rendezvous.at_address(sockets, pids, address, int(port))) is not None
    ] or rendezvous.meetings(sockets, pids)
    return max(found, key=lambda meeting: (meeting.host is not None, len(meeting.clients)), default=None)


def _renumbered(job: Job, ranks: Mapping[int, int]) -> Job:
    """``job`` with the ranks that its processes joined as: a program may ignore its launcher's."""
    if all(target.pid is None or ranks[target.pid] == target.rank for target in job.targets):
        return job
    targets = [
        replace(target, rank=ranks[target.pid], identity="store") for target in job.targets if target.pid is not None
    ]
    missing = [target for target in job.targets if target.pid is None and target.rank not in ranks.values()]
    return replace(job, targets=tuple(sorted([*targets, *missing], key=lambda target: target.rank)))


def _variables(target: RankTarget) -> dict[str, str]:
    return dict(target.environment)


def living_elsewhere(
    targets: Sequence[RankTarget], store: RendezvousStore | None, ended: Container[int]
) -> tuple[RankTarget, ...]:
    """``targets``; a rank without a process here that has joined the store and has not ``ended`` gets ``ELSEWHERE``."""
    joined = set(store.joined or ()) if store is not None else set()
    return tuple(
        replace(target, identity=ELSEWHERE)
        if target.pid is None and target.rank in joined and target.rank not in ended
        else target
        for target in targets
    )
