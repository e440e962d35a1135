"""A service answers when each of its clients has sent something, and a client that has sent nothing is elsewhere.

Example: ranks 0, 1 and 3 wait at one line for data from rank 0, whose thread `coordinator` waits in poll for data of
rank 2's connection; rank 2 has left its step early and is in the next all_reduce → rank 2. Whatever the protocol is,
who serves shows by its system call whom it waits for.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from hangdoc.diagnosis.blame.missing_request import MissingRequest, without_its_call
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.state.process import is_moving, thread_files
from hangdoc.diagnosis.state.serving import address, at_its_address, other_end
from hangdoc.diagnosis.state.threads import Node
from hangdoc.model.kinds import COMMUNICATING, ActivityKind, Confidence
from hangdoc.model.process import OpenFile
from hangdoc.model.wording import ranks_text

_SOCKETS = ("socket:tcp ", "socket:unix ")


@dataclass(frozen=True)
class UnsentMessage(MissingRequest):
    """``server``: the thread that waits for data of the culprits, before it answers the ``waiting``."""

    server: Node | None = None


def unsent_message(case: Case) -> Blame[UnsentMessage] | None:
    """The blame of the clients of a service that it waits for, and that wait in a collective for those that it has not
    answered; None where another rank does anything else, or the service waits for one of those as well."""
    asking = {rank: files for rank in sorted(case.seen) if (files := _asked(case, rank))}
    owners = {owner for rank, files in asking.items() for file in files for owner in owners_of(case, rank, file)}
    places = {(a.file, a.line) for r in asking if (a := case.activities[r].where) is not None}
    rest = tuple(rank for rank in sorted(case.seen) if rank not in asking)
    if case.hidden or len(owners) != 1 or len(places) != 1 or not rest:
        return None
    if any(case.activities[r].kind not in COMMUNICATING or case.graph.on(r).isdisjoint(asking) for r in rest):
        return None
    (server,) = owners
    ends = {other_end(file.target) for files in asking.values() for file in files}
    served = _served(case, server, {address(end) for end in ends})
    absent = tuple(rank for rank in rest if served is not None and rank in served[1])
    if served is None or not absent or served[1] & asking.keys() or server in absent:
        return None
    found = without_its_call(case, absent, tuple(asking), f"message to rank {server}")
    if found is None:
        return None
    known = {each.name: getattr(found, each.name) for each in fields(found)}
    sure = f"rank {server} waits for data of {ranks_text(absent)} before it answers {ranks_text(tuple(asking))}"
    return Blame(UnsentMessage(**known, server=served[0]), absent, confidence=Confidence.LIKELY, sure=sure)


def _asked(case: Case, rank: int) -> list[OpenFile]:
    """The sockets from which the rank's main thread waits for data."""
    process = case.ranks[rank].process
    if process is None or case.activities[rank].kind != ActivityKind.IO or is_moving(process):
        return []
    # Of a unix socket to a server of its own, the process at the other end does not show.
    files = [file for file in process.blocking_files if file.target.startswith(_SOCKETS)]
    return [file for file in files if file.peers or file.target.startswith("socket:unix ")]


def _served(case: Case, server: int, here: set[str]) -> tuple[Node, set[int]] | None:
    """(the thread of the rank that waits for data at these addresses of its own, the ranks at the other ends)."""
    process = case.ranks[server].process
    thread = at_its_address(process, here, case.sources) if process is not None else None
    if process is None or thread is None:
        return None
    clients = {rank for file in thread_files(process, thread) for rank in owners_of(case, server, file)}
    return Node(server, process, thread), clients


def owners_of(case: Case, rank: int, file: OpenFile) -> list[int]:
    """The ranks of the same host whose process holds the other end."""
    host = case.ranks[rank].host
    same = {s.process.pid: r for r, s in case.ranks.items() if s.process is not None and s.host == host}
    return [same[pid] for pid in file.peers if pid in same]
