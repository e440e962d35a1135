"""HD507 of a rank that waits for an answer on a socket from one that waits in a call which needs the first."""

from __future__ import annotations

from hangdoc.diagnosis.blame.wait_cycle import WaitCycle
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.causes.wait_chain import threads_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.kinds import COMMUNICATING, ActivityKind
from hangdoc.model.message import Does, Ranks, sentence


@cause("HD507", explains=WaitCycle, order=325)
def unanswered(case: Case, blame: Blame[WaitCycle]) -> Finding | None:
    """HD507: a rank waits for another one's answer on a socket, and that one waits in a call that needs the first.

    Example: a thread of rank 0 that dealt out indices has died; rank 1 waits for one, rank 0 in all_reduce.
    """
    stuck = case.graph.stuck
    asking = {w.waiter: w.on[0] for w in case.graph.waits if len(w.on) == 1 and _reads_socket(case, w.waiter)}
    asking = {rank: on for rank, on in asking.items() if rank in stuck and on in stuck and on not in asking}
    servers = set(asking.values())
    if len(servers) != 1 or any(case.activities[r].kind not in COMMUNICATING for r in stuck - asking.keys()):
        return None
    (server,), askers = servers, tuple(sorted(asking))
    process = case.ranks[server].process
    alone = process is not None and not threads_of(process)
    first = case.activities[askers[0]]
    return Finding(
        "HD507",
        sentence(
            [Does(askers, "waits", "wait"), f" for data from rank {server} on a socket at ", place(first.where)],
            f"rank {server} has no other thread that runs the program's code" if alone else "",
            where_they_wait(case, tuple(sorted(case.activities.keys() - set(askers)))),
        ),
        [
            f"rank {server} itself waits in a call that needs ",
            Ranks(askers),
            ": either a thread of it that was to answer has ended, perhaps by an exception, or the order is wrong",
        ],
        "let the thread that serves the socket close it whatever happens, send before the call that the reader has to "
        "join, and give the read a timeout",
    )


def _reads_socket(case: Case, rank: int) -> bool:
    process = case.ranks[rank].process
    files = process.blocking_files if process is not None else ()
    return case.activities[rank].kind == ActivityKind.IO and any(f.target.startswith("socket:") for f in files)
