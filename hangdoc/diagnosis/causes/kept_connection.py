"""HD507: a server serves one connection at a time, and a rank that asks nothing keeps its own open."""

from __future__ import annotations

from hangdoc.diagnosis.blame.kept_connection import KeptConnection
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.left_traces import left_by
from hangdoc.diagnosis.causes.phrases import at, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.message import Does, joined, sentence


@cause("HD507", explains=KeptConnection, order=301)
def connection_kept_open(case: Case, blame: Blame[KeptConnection]) -> Finding:
    """HD507: the thread that would accept the others' connections waits for the next request of one that is open."""
    found, (server,) = blame.found, blame.culprits
    waiting, keeping = found.waiting, found.keeping
    rest = tuple(rank for rank in sorted(case.activities) if rank not in waiting)
    others = tuple(rank for rank in waiting if rank != keeping)
    return Finding(
        "HD507",
        sentence(
            [
                [f"rank {server}'s server (thread `{found.thread.name}`) serves one connection at a time, and waits "],
                [f"for the next request on the one that rank {keeping} keeps open; "],
                [Does(waiting, "has", "have"), " connected to it", at(case.activities[waiting[0]].where)],
                ", and nobody accepts that",
            ],
            where_they_wait(case, rest),
        ),
        joined(
            f"rank {keeping} asks nothing more before the others come, and does not close its connection",
            left_by(case, (keeping,), others),
        ),
        "give each connection a thread of its own (ThreadingHTTPServer, ThreadingMixIn), or close a connection after "
        "its answer (HTTP/1.0, `Connection: close`)",
    )
