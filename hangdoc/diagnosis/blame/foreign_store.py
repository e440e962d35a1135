"""Another job to blame: its process has this job's port, and the ranks are connected to its store."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.state.activity import waits_for_a_key
from hangdoc.model.diagnosis import CulpritProcess
from hangdoc.model.kinds import COMMUNICATING, GONE, ActivityKind, Confidence
from hangdoc.model.snapshot import RankSnapshot
from hangdoc.model.store import ForeignServer

_PORT_TAKEN = "DistNetworkError"
"""What the rank that should serve the store raises where the port is in use (torch 2.13). Of other failures to connect
as well, so that it proves something only together with a process that has the port, or with torch's own words."""
_IN_USE = re.compile(r"port: (\d+)\b.*\bEADDRINUSE\b", re.DOTALL)
"""What it says then: 'failed to listen on any local network address. port: 29500, …, name: EADDRINUSE' (torch 2.13)."""


@dataclass(frozen=True, slots=True)
class ForeignStore(Explanation):
    """Ranks are connected to a store that a process outside of the job serves; rank 0, which should, is gone."""

    server: ForeignServer | None
    """None: rank 0 was told that the port is in use, and no process was seen that has it."""
    port: int
    connected: tuple[int, ...]
    """The ranks that wait for others and are connected to that store."""
    refused: bool
    """Rank 0 ended because it could not listen at the port."""


def foreign_store(case: Case) -> Blame[ForeignStore] | None:
    """The blame of the process that serves the ranks' store in place of rank 0; None if rank 0 may serve one.

    A rank 0 that lives or has made calls was given that store by design, and torchrun's agents may share one. Example:
    pid 4711 of another job has port 29500, rank 0 could not listen there and ended, rank 1 waits for it → pid 4711.
    """
    store = case.job.store
    first = case.ranks.get(0)
    if first is None or not _is_gone(case, first):
        return None
    if store is None or store.foreign is None:
        return _port_in_use(case, first)
    connected = tuple(sorted(rank for rank in case.seen if _waits_there(case, case.ranks[rank], store.port)))
    refused = first.exit is not None and first.exit.exception == _PORT_TAKEN
    server = store.foreign
    if not connected or not (refused or _cannot_be_meant(case, server, connected)):
        return None
    return Blame(
        ForeignStore(server, store.port, connected, refused),
        proved=True,
        confidence=Confidence.CERTAIN if refused else Confidence.LIKELY,
        sure="seen at the other end of the ranks' own connections"
        + ("; rank 0, which should listen there, could not" if refused else ""),
        processes=(CulpritProcess(None, server.pid, case.ranks[connected[0]].host, "foreign-job"),),
    )


def _port_in_use(case: Case, first: RankSnapshot) -> Blame[ForeignStore] | None:
    """The blame where nobody was seen at the port, and rank 0 itself was told that it is in use.

    Whose process has it is unknown then: it may be one of the job's own that is older than this run.
    """
    end = first.exit
    said = _IN_USE.search(end.message) if end is not None and end.exception == _PORT_TAKEN else None
    waiting = tuple(sorted(r for r in case.seen if case.activities[r].kind == ActivityKind.STORE_WAIT))
    environments = [dict(case.ranks[rank].environment) for rank in (0, *waiting)]
    if said is None or not waiting or any(env.get("MASTER_PORT", said[1]) != said[1] for env in environments):
        return None
    return Blame(
        ForeignStore(None, int(said[1]), waiting, refused=True),
        proved=True,
        confidence=Confidence.LIKELY,
        sure="rank 0's exception says so; which process has the port was not seen",
        processes=(CulpritProcess(None, None, first.host, "foreign-job"),),
    )


def _cannot_be_meant(case: Case, server: ForeignServer, connected: tuple[int, ...]) -> bool:
    """True if the server is a known process that cannot serve the store by design: another job's rank, or any other
    while ranks still wait to join (ranks that have joined may be meant to use it)."""
    if server.pid is None:
        return False  # a process that cannot be read may be the job's own
    joining = any(case.activities[rank].kind == ActivityKind.STORE_WAIT for rank in connected)
    return joining or server.rank is not None


def _is_gone(case: Case, first: RankSnapshot) -> bool:
    """True if rank 0 ended or has no process, and never made a call."""
    called = first.journal is not None and bool(first.journal.calls)
    return case.activities[0].kind in GONE and not called


def _waits_there(case: Case, rank: RankSnapshot, port: int) -> bool:
    """True if the rank waits for others, and is connected to the port that its environment gives for the store."""
    activity, environment = case.activities[rank.rank], dict(rank.environment)
    if activity.kind not in COMMUNICATING or waits_for_a_key(activity) or rank.process is None:
        return False
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True" or environment.get("MASTER_PORT") != str(port):
        return False
    pid = rank.process.pid
    return any(
        end.pid == pid and end.remote_port == port and end.state == "ESTABLISHED"
        for host in case.job.hosts
        if host.name == rank.host
        for end in host.connections
    )
