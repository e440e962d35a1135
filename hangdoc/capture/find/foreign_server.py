"""Does the store that a job's ranks are connected to belong to another process? Two jobs may have one MASTER_PORT."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from hangdoc.capture.find.job import Job
from hangdoc.capture.find.jobs import Jobs
from hangdoc.capture.find.launchers import Carrier, carriers
from hangdoc.capture.find.process_table import ProcessTable
from hangdoc.capture.find.rendezvous import Meeting
from hangdoc.capture.read.sockets import Sockets
from hangdoc.capture.safe.command_line import without_secrets
from hangdoc.model.store import ForeignServer

_SECONDS = 1.0
"""For the search of the open files of all processes; one takes 0.03 ms on average (measured). Judgement."""


def foreign_server(table: ProcessTable, job: Job, meeting: Meeting, sockets: Sockets) -> ForeignServer | None:
    """The process on this host, outside of ``job``, that serves the store of ``meeting``; None if there is none.

    The other end of a rank's own connection shows it, so a port of the same number on another host or in another
    network does not count. Example: rank 1 is connected to port 29500, which pid 4711 serves, a rank of another job.
    """
    connections = [
        entry
        for entry in sockets.connections
        if entry.pid in meeting.clients and (entry.remote_address, entry.remote_port) == (meeting.address, meeting.port)
    ]
    if meeting.host is not None or not connections:
        return None
    ends = table.other_ends(min(meeting.clients), connections)
    if not ends:
        return None
    pid = _holder(table, ends)
    if pid is None:
        return ForeignServer()
    return None if pid in _family(table, job) else _described(table, job, pid)


def _holder(table: ProcessTable, ends: Mapping[int, int]) -> int | None:
    """The oldest process that holds one of the sockets: it made them, and those it started inherited them."""
    until = time.monotonic() + _SECONDS
    users = set(ends.values())
    for entry in sorted(table.processes.values(), key=lambda entry: (entry.started, entry.pid)):
        if time.monotonic() > until:
            return None
        if entry.alive and entry.user in users and not ends.keys().isdisjoint(table.socket_inodes(entry.pid)):
            return entry.pid
    return None


def _family(table: ProcessTable, job: Job) -> set[int]:
    """The job's processes, what started them and what they started: any of these may serve the store by design."""
    members: Collection[int] = {*job.pids, *job.inside}
    family = {*members, *(pid for member in members for pid in (*table.ancestors(member), *table.below(member)))}
    return family if job.root is None else {*family, job.root, *table.below(job.root)}


def _described(table: ProcessTable, job: Job, pid: int) -> ForeignServer | None:
    """What the process is; None if it may be a rank of ``job`` that was not found: by its number, or by its script."""
    entry = table[pid]
    carrier = next(iter(carriers({pid: entry}, table.is_python)), None)
    if carrier is not None and _may_be_missing_rank(table, job, carrier):
        return None
    if carrier is None and any(entry.argv == table[member].argv for member in job.pids if member in table):
        return None
    return ForeignServer(
        pid,
        without_secrets(entry.argv),
        carrier.rank if carrier is not None else None,
        carrier.world_size if carrier is not None else None,
    )


def _may_be_missing_rank(table: ProcessTable, job: Job, carrier: Carrier) -> bool:
    """True if the process has the number of a rank of ``job`` without a process, and is not of a second such job."""
    missing = {target.rank for target in job.targets if target.pid is None}
    world = max((target.world_size or 0 for target in job.targets), default=0)
    if carrier.world_size != world or carrier.rank not in missing:
        return False
    other = Jobs(table, near=min(job.pids)).of(carrier.pid)
    # The same job, started twice: a job has no rank twice.
    return other is None or bool(set(other.pids) & set(job.pids)) or not _living_ranks(other) & _living_ranks(job)


def _living_ranks(job: Job) -> set[int]:
    return {target.rank for target in job.targets if target.pid is not None}
