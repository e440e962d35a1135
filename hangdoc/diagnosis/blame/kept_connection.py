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
from hangdoc.diagnosis.state.process import thread_files
from hangdoc.diagnosis.state.serving import is_unaccepted, other_end, serves_in_turn
from hangdoc.model.kinds import Confidence
from hangdoc.model.process import OpenFile, Process, Thread


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
    waiting: dict[int, list[int]] = {}
    served: set[str] = set()
    for rank, snapshot in sorted(case.ranks.items()):
        files = snapshot.process.blocking_files if snapshot.process is not None else ()
        for file in filter(is_unaccepted, files):
            served.add(_ends(file)[1])
            for owner in owners_of(case, rank, file):
                waiting.setdefault(owner, []).append(rank)
    for server, ranks in waiting.items() if len(waiting) == 1 else ():
        process = case.ranks[server].process
        for thread, keeping in _kept(case, server, process, served) if process is not None else ():
            if keeping not in ranks and case.graph.dissolves((server, *ranks)):
                found = KeptConnection(tuple(ranks), thread, keeping)
                sure = f"its only thread that accepts waits for data of rank {keeping}, which waits elsewhere"
                return Blame(found, (server,), confidence=Confidence.LIKELY, sure=sure)
    return None


def _kept(case: Case, server: int, process: Process, served: set[str]) -> Iterator[tuple[Thread, int]]:
    """(a thread that serves one connection to these addresses after the other, the rank at whose it waits for data)."""
    for thread in process.last.threads if process.last is not None else ():
        for file in thread_files(process, thread) if serves_in_turn(thread, case.sources) else ():
            for keeping in owners_of(case, server, file) if _ends(file)[0] in served else ():
                if not _waits_at(case, keeping, other_end(file.target)):
                    yield thread, keeping


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
