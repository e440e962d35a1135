"""Ranks that call each other back: each thread for calls of others waits, in one of these, for a further such call.

Example: with one thread each, rank 0 has called run_layer() on rank 1, which calls run_layer() on rank 0, which calls
it on rank 1 once more: there the only thread waits in the first of them → ranks 0 and 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.state.threads import Chain, End, runs_remote_call
from hangdoc.model.kinds import Confidence
from hangdoc.model.wording import ranks_text


@dataclass(frozen=True, slots=True)
class NestedCalls(Explanation):
    """The threads of the ``chain``'s circle each run a call of another rank, and wait for the answer to their own."""

    waiting: tuple[int, ...]
    chain: Chain


def nested_calls(case: Case) -> Blame[NestedCalls] | None:
    """The blame of the ranks of such a circle, where no lock is held in it."""
    for chain in (chain for _, chain in sorted(case.chains.items()) if chain.end is End.CIRCLE):
        hops = chain.circle
        if not hops or any(hop.lock is not None or not runs_remote_call(hop.node.thread) for hop in hops):
            continue
        ranks = tuple(sorted({hop.node.rank for hop in hops}))
        if case.hidden or not case.graph.dissolves(ranks):
            continue
        waiting = tuple(rank for rank in sorted(case.graph.stuck) if rank not in ranks)
        sure = f"each thread of {ranks_text(ranks)} that runs another rank's call waits for the answer to its own"
        return Blame(NestedCalls(waiting, chain), ranks, proved=True, confidence=Confidence.LIKELY, sure=sure)
    return None
