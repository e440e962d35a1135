"""HD507 of a rank that waits for an answer on a socket from one that waits in a call which needs the first."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.blame.wait_cycle import WaitCycle
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.causes.wait_chain import threads_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.syntax import dotted, holds, innermost_loop, last_name, walk
from hangdoc.model.kinds import COMMUNICATING, ActivityKind
from hangdoc.model.message import Condition, Does, Joined, Message, Ranks, joined, sentence


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
    late, again = blame.found.late, _asks_again(case, askers[0])
    rounds: Message = ["how often ", Ranks(askers[:1]), " asks depends on ", again] if again is not None else ""
    why: Message = ""
    fix = f"let rank {server} send before the call that the reader has to join, and give the read a timeout"
    if late:
        why = [": it has given the others what ", Ranks(askers), " waits for, probably before that one came"]
        rounds = [Ranks(blame.culprits), " alone has been under ", Joined(late, " and "), " on the way there"]
        fix = f"let rank {server} wait until all readers have come before it sends the first time, or send the latest "
        fix += "to those that come later"
    return Finding(
        "HD507",
        sentence(
            [Does(askers, "waits", "wait"), f" for data from rank {server} on a socket at ", place(first.where)],
            f"rank {server} has no other thread that runs the program's code" if alone else "",
            where_they_wait(case, tuple(sorted(case.activities.keys() - set(askers)))),
        ),
        joined(
            [f"rank {server} itself waits in a call that needs ", Ranks(askers), why],
            rounds,
        ),
        fix,
        decided_at=next(iter((*late,)), again),
    )


def _asks_again(case: Case, rank: int) -> Condition | None:
    """The `while` around the rank's request whose test compares what it counts in there; None where there is none, and
    for one that reads the parts of a single answer.

    Example: `while rows < self.quota: ⏎ rows += self.fetch()["rows"]`.
    """
    where = case.activities[rank].where
    tree = case.sources.function(where.file, where.line) if where is not None else None
    if where is None or tree is None:
        return None
    inner = innermost_loop(tree, where.line)
    if not isinstance(inner, ast.While) or not isinstance(inner.test, ast.Compare):
        return None
    calls = [n for n in walk(inner) if isinstance(n, ast.Call)]
    if any(holds(call, where.line) and last_name(call.func) in names("socket_call") for call in calls):
        return None
    counted = {dotted(n.target) for each in inner.body for n in walk(each) if isinstance(n, ast.AugAssign)}
    guard = next((g for g in guards(tree, where.line) if g.line == inner.lineno), None)
    compared = {dotted(each) for each in (inner.test.left, *inner.test.comparators)} - {""}
    return Condition(guard.condition, where.file, guard.line) if guard and counted & compared else None


def _reads_socket(case: Case, rank: int) -> bool:
    process = case.ranks[rank].process
    files = process.blocking_files if process is not None else ()
    return case.activities[rank].kind == ActivityKind.IO and any(f.target.startswith("socket:") for f in files)
