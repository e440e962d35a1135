"""Build the model of one process from what was read of it: ``Process`` and ``RankSnapshot``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hangdoc.capture.find.target import RankTarget
from hangdoc.capture.read import blocked_calls, sockets
from hangdoc.capture.read.children import Subject
from hangdoc.capture.read.probe_client import ProbeDetails
from hangdoc.model.journal import Journal
from hangdoc.model.process import OpenFile, Process, ProcessExit, ProcessState
from hangdoc.model.snapshot import LogTail, RankSnapshot


@dataclass(frozen=True, slots=True)
class BlockingFiles:
    """By pid of this host: what the main thread blocks on, and the files that the process has locked."""

    blocked: Mapping[int, tuple[OpenFile, ...]]
    locked: Mapping[int, tuple[str, ...]]


def blocking_files(states: Mapping[int, ProcessState], network: sockets.Sockets) -> dict[int, tuple[OpenFile, ...]]:
    """By pid: what the main thread of each process blocks on, with the processes at the other ends."""
    files = [(pid, blocked_calls.blocking_files(pid, state.main)) for pid, state in states.items()]
    found = blocked_calls.find_peers([(pid, some) for pid, some in files if some], states)
    return {pid: sockets.name_sockets(some, network) for pid, some in found.items()}


def process_of(
    family: Subject | None, looks: Sequence[Mapping[int, ProcessState]], files: BlockingFiles
) -> Process | None:
    """The process and those below it, each with its looks (by pid); None if ``family`` is None."""
    if family is None:
        return None
    return Process(
        pid=family.pid,
        ppid=family.ppid,
        role=family.role,
        comm=family.comm,
        argv=family.argv,
        started=family.started,
        looks=tuple(look[family.pid] for look in looks if family.pid in look),
        blocking_files=files.blocked.get(family.pid, ()),
        locked_files=files.locked.get(family.pid, ()),
        cwd=family.cwd,
        children=tuple(found for child in family.children if (found := process_of(child, looks, files))),
    )


def rank_snapshot(
    target: RankTarget,
    process: Process | None,
    details: ProbeDetails | None,
    ended: ProcessExit | None,
    last_journal: Journal | None,
    log: LogTail | None,
) -> RankSnapshot:
    """The rank with what its probe said; ``last_journal`` replaces the journal of a probe that did not answer."""
    counters = details.counters if details is not None else None
    own = details.environment if details is not None else ()
    return RankSnapshot(
        rank=target.rank,
        host=target.host,
        identity=target.identity,
        world_size=(counters.world_size if counters else None) or target.world_size,
        local_rank=target.local_rank,
        restart=target.restart,
        environment=tuple(sorted({**dict(target.environment), **dict(own)}.items())),
        process=process,
        exit=ended,
        journal=details.journal if details is not None else last_journal,
        first_store=details.first_store if details is not None else (),
        log=log,
        rivals=target.rivals,
    )
