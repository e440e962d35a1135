"""HD507 of a rank that waits for an answer on a socket from one that waits in a call which needs the first."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.blame.died_threads import died_at, died_thread
from hangdoc.diagnosis.blame.wait_cycle import WaitCycle
from hangdoc.diagnosis.causes.call_conditions import conditions_of_call
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import line_of, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.causes.wait_chain import threads_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.syntax import dotted, enclosing_function, holds, innermost_loop, last_name, walk
from hangdoc.diagnosis.state.serving import is_unaccepted
from hangdoc.model.kinds import COMMUNICATING, ActivityKind
from hangdoc.model.message import Condition, Does, Joined, Message, Ranks, joined, sentence
from hangdoc.model.told_errors import ended_thread

_SENDS = ("send", "send_bytes")
"""By which multiprocessing's connections send, and sockets as well (Python 3.11)."""
_MOST_CONDITIONS = 2
"""Conditions that a sentence names; chosen by hand."""


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
    sent = _sent_under(case, server, askers[0])
    late, again = blame.found.late, _asks_again(case, askers[0])
    rounds: Message = ["how often ", Ranks(askers[:1]), " asks depends on ", again] if again is not None else ""
    why: Message = ""
    fix = f"let rank {server} send before the call that the reader has to join, and give the read a timeout"
    more = _asked_more_under(case, askers[0]) if _is_unaccepted(case, askers[0]) and not late else []
    if more:
        why = [f": it accepts no more, so another rank may have taken the turn of rank {askers[0]}"]
        rounds = ["a rank asks once more under ", Joined(more, " or ")]
        fix = "let the server take requests until each rank has said that it is done, not a number of them, and give "
        fix += "the read a timeout"
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
            _died(case, server),
            rounds,
            [f"what rank {server} sends, it sends under ", Joined(sent, " and ")] if sent else "",
        ),
        fix,
        decided_at=next(iter((*late, *more)), again),
    )


def _is_unaccepted(case: Case, rank: int) -> bool:
    """True if the rank waits on a connection that its server never accepted."""
    process = case.ranks[rank].process
    return process is not None and any(map(is_unaccepted, process.blocking_files))


def _asked_more_under(case: Case, rank: int) -> list[Condition]:
    """The conditions under which the function in which the rank waits makes the same request at another line.

    Example: `board.hand_in(score) ⏎ if score < floor: ⏎ board.hand_in(floor)`, and it waits in the former → the `if`.
    """
    where = case.activities[rank].where
    tree = case.sources.function(where.file, where.line) if where is not None else None
    if where is None or tree is None:
        return []
    calls = [n for n in walk(enclosing_function(tree, where.line)) if isinstance(n, ast.Call)]
    made = {last_name(call.func) for call in calls if holds(call, where.line)} - {""}
    here = {guard.place for guard in guards(tree, where.line)}
    again = [call for call in calls if last_name(call.func) in made and not holds(call, where.line)]
    around = [g for call in again for g in guards(tree, call.lineno) if g.kind in CONDITIONS and g.place not in here]
    found = list(dict.fromkeys(Condition(g.condition, where.file, g.line) for g in around))
    return found if len(found) <= _MOST_CONDITIONS else []


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


def _died(case: Case, server: int) -> Message:
    """'by the output, its thread client-1 ended with KeyError at labels.py:27'."""
    died = died_thread(case, server)
    if died is None:
        return ""
    error = died.error.partition(":")[0].rpartition(".")[2]
    return [f"by the output, its thread {ended_thread(died.announced)} ended with {error} at ", line_of(died_at(died))]


def _sent_under(case: Case, server: int, asker: int) -> list[Condition]:
    """The conditions around the only line at which the server's rank has sent something, and the asking one has not.

    Example: `for sock, topics in self.subscribers: ⏎ if topic in topics: ⏎ send(sock, value)` → the `if`.
    """
    writes = [each.at for each in case.sources.user_calls(*names("writes_to_socket"), *_SENDS)]
    lines = [*writes, *(each.at for at in writes for each in case.sources.user_calls(at.function))]
    known = [at for at in lines if conditions_of_call(case.sources, at, ())]
    mine = [at for at in known if case.table.ran(server, at.file, at.line)]
    mine = [at for at in mine if not case.table.ran(asker, at.file, at.line)]
    found = [each for at in mine for each in conditions_of_call(case.sources, at, case.activities[server].stack)]
    found = list(dict.fromkeys(each for each in found if not pattern("rank_word").search(each.source)))
    return found if 0 < len(found) <= _MOST_CONDITIONS else []


def _reads_socket(case: Case, rank: int) -> bool:
    process = case.ranks[rank].process
    files = process.blocking_files if process is not None else ()
    return case.activities[rank].kind == ActivityKind.IO and any(f.target.startswith("socket:") for f in files)
