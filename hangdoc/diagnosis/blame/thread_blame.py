"""Ranks that hold others up by a thread that is not their main thread: a server's, a handler's, a helper's."""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.blame.shared_by_processes import is_past_them
from hangdoc.diagnosis.bounds import COMPARED
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.landmarks import below_user, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.state.threads import Chain, End
from hangdoc.model.kinds import Confidence
from hangdoc.model.wording import ranks_text


@dataclass(frozen=True, slots=True)
class ThreadWait(Explanation):
    """The wait of ``waiting`` leads, from thread to thread, to one of the culprits' threads. Their main threads may
    wait in correct code."""

    waiting: tuple[int, ...]
    chain: Chain


def thread_wait(case: Case) -> Blame[ThreadWait] | None:
    """The blame of a rank whose thread, other than its main thread, keeps other ranks waiting.

    To blame is whoever can let the chain go on: the rank at whose thread it ends; where a lock is held in a call or in
    a circle, the rank that holds it. Example: rank 1 waits for thread `server` of rank 0, which waits on a queue that
    nobody fills; rank 0's main thread waits for rank 1 → rank 0. Only possibly, where its main thread would end the
    wait after its call: the others could leave out their question as well. None unless all stuck ranks get free by
    that, and where the ranks of the chain are not stuck: whoever still works may set them free.
    """
    # Each branch is one condition of those the docstring names.
    waiters: dict[int, list[int]] = {}
    for rank, chain in sorted(case.chains.items()):
        if chain.through_a_servant and chain.end is not End.REQUEST and _is_stuck(case, chain):
            waiters.setdefault(id(chain.last.thread), []).append(rank)
    for ranks in list(waiters.values())[:COMPARED]:
        chain, waiting = case.chains[ranks[0]], tuple(ranks)
        culprits = _responsible(chain)
        if not culprits or not case.graph.dissolves(waiting if chain.end is End.OUTSIDE else culprits):
            continue
        others = tuple(r for r in waiting if r not in culprits)
        found = ThreadWait(others or waiting, chain)
        if served := _served_before(case, chain, waiting):
            sure = f"{ranks_text(served)} got an answer there, {ranks_text(waiting)} alone has not"
            return Blame(found, waiting, confidence=Confidence.LIKELY, sure=sure)
        proved = chain.end is not End.OUTSIDE and all(hop.node.thread.wakes_in is None for hop in chain.hops)
        if chain.end is End.CALL and chain.lock is None:
            sure = f"{ranks_text(culprits)} would end the wait after a call that needs {ranks_text(others)}"
            return Blame(found, culprits, (others,), proved=proved, sure=sure)
        return Blame(found, culprits, proved=proved, confidence=Confidence.LIKELY, sure=_why(chain, culprits))
    return None


def _served_before(case: Case, chain: Chain, waiting: tuple[int, ...]) -> tuple[int, ...]:
    """The ranks that are past the line at which the only one asks that gets no answer, where these are all others: it
    has asked for something else than they have. () where the answer waits for a lock, which any of them may have kept.

    Example: `lessons.after(number)` waits until there are more than `number`; ranks 0 to 2 have got theirs and are in
    the all_reduce, and rank 3 asks for one that is not there yet → (0, 1, 2).
    """
    below = below_user(chain.last.thread.frames)
    takes_lock = not below or plain(below[0].function).rpartition(".")[2] not in names("waits_for_more")
    if chain.end is not End.OUTSIDE or len(waiting) != 1 or takes_lock:
        return ()
    past = tuple(r for r in sorted(case.seen) if r not in waiting and is_past_them(case, r, waiting[0]))
    return past if len(past) >= max(2, len(case.seen) - 1) else ()


def _why(chain: Chain, culprits: tuple[int, ...]) -> str:
    if chain.end is End.OUTSIDE:
        return "what its thread waits for, no thread seen would end"
    if len(culprits) > 1:
        return f"{ranks_text(culprits)} hold locks that their calls to each other need"
    return f"{ranks_text(culprits)} holds a lock over a call"


def _is_stuck(case: Case, chain: Chain) -> bool:
    return chain.end is End.CIRCLE or case.graph.stuck.issuperset(hop.node.rank for hop in chain.hops)


def _responsible(chain: Chain) -> tuple[int, ...]:
    """The ranks that can let a chain go on; () where that is not known."""
    if chain.end is End.OUTSIDE or (chain.end is End.CALL and chain.lock is None):
        return (chain.last.rank,)
    hops = chain.circle or chain.hops
    return tuple(sorted({chain.after(hop).rank for hop in hops if hop.lock is not None}))
