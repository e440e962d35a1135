"""A server that serves one connection at a time, and one of them is kept open by a rank that asks nothing.

Example: an `HTTPServer` of rank 0 speaks HTTP/1.1, so that its only thread waits for the next request of the connection
that rank 2 keeps in a `requests.Session()`; ranks 1 and 3 have connected, nobody accepts them, and rank 2 waits for
them in an all_reduce → rank 0, whose server needs a thread for each connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hangdoc.diagnosis.blame.unsent_message import owners_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.state.process import thread_files
from hangdoc.diagnosis.state.serving import is_unaccepted, keeps_to_one, other_end
from hangdoc.model.kinds import COMMUNICATING, Confidence
from hangdoc.model.process import OpenFile, Thread

_NAMELESS = "socket:["
"""How the target of a socket begins of which neither end has a name that shows (Linux 6, /proc/PID/fd)."""


@dataclass(frozen=True, slots=True)
class KeptConnection(Explanation):
    """The ``waiting`` have connected to the culprit and are not accepted: its ``thread`` waits for data of the
    connection that rank ``keeping`` keeps open."""

    waiting: tuple[int, ...]
    thread: Thread
    keeping: int


def kept_connection(case: Case) -> Blame[KeptConnection] | None:
    """The blame of the rank whose server does not come to accept the others; None if the one that keeps it at its
    connection has asked it something, or several ranks serve."""
    waiting: dict[int, set[str]] = {}
    named: set[int] = set()
    for rank, snapshot in sorted(case.ranks.items()):
        files = snapshot.process.blocking_files if snapshot.process is not None else ()
        for file in _awaited_alone(files):
            if is_unaccepted(file):
                waiting.setdefault(rank, set()).add(_ends(file)[1])
                named.update(owners_of(case, rank, file))
            elif file.target.startswith(_NAMELESS) and not file.peers:
                waiting.setdefault(rank, set())  # of a unix socket, who listens does not show
    if not waiting or len(named) > 1:
        return None
    served = {end for ends in waiting.values() for end in ends}
    found = [each for server in sorted(named or case.seen) for each in _kept(case, server, served)]
    if len({server for server, _, _ in found}) != 1:
        return None
    server, thread, keeping = found[0]
    waits = case.activities[keeping].kind in COMMUNICATING and case.graph.on(keeping)
    if keeping in waiting or not waits or not case.graph.dissolves((server, *waiting)):
        return None
    sure = f"its only thread that accepts waits for data of rank {keeping}, which waits elsewhere"
    why = KeptConnection(tuple(waiting), thread, keeping)
    return Blame(why, (server,), confidence=Confidence.LIKELY, sure=sure)


def _kept(case: Case, server: int, served: set[str]) -> Iterator[tuple[int, Thread, int]]:
    """(the rank, a thread of it that serves one connection after the other, the rank at whose it waits for data).
    ``served``: the addresses that it serves; without any, those of unix sockets."""
    process = case.ranks[server].process
    for thread in process.last.threads if process is not None and process.last is not None else ():
        keeps = process is not None and keeps_to_one(thread, case.sources)
        for file in _awaited_alone(thread_files(process, thread)) if process is not None and keeps else ():
            here = _ends(file)[0] in served if served else file.target.startswith("socket:unix ")
            for keeping in owners_of(case, server, file) if here else ():
                if not _waits_at(case, keeping, other_end(file.target)):
                    yield server, thread, keeping


def _awaited_alone(files: tuple[OpenFile, ...]) -> tuple[OpenFile, ...]:
    """The files, without those of which whichever is ready first is served: several that one select() waits for."""
    many = names("wait_for_many", of="kernel")
    return files if len(files) < 2 else tuple(file for file in files if file.operation not in many)


def _ends(file: OpenFile) -> tuple[str, str]:
    """('A', 'B') of 'socket:tcp A to B (ESTABLISHED)'."""
    here, _, there = file.target.partition(" (")[0].partition(" to ")
    return here.rpartition(" ")[2], there


def _waits_at(case: Case, rank: int, end: str) -> bool:
    """True if a thread of the rank waits for data from that end of a socket."""
    process = case.ranks[rank].process
    threads = process.last.threads if process is not None and process.last is not None else ()
    files = [file for t in threads if process is not None for file in thread_files(process, t)]
    return any(file.target.partition(" (")[0] == end for file in files)
