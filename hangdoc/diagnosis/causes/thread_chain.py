"""A chain of waiting threads in sentences: one clause for each thread."""

from __future__ import annotations

from itertools import pairwise

from hangdoc.diagnosis.causes.phrases import line_of, place
from hangdoc.diagnosis.state.threads import Chain, Hop, Node, thread_wait_of
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.message import Message, Ranks

ENDS = {
    ActivityKind.IO: "HD507",
    ActivityKind.PIPE: "HD507",
    ActivityKind.SLEEPING: "HD508",
    ActivityKind.FILE_LOCK: "HD504",
    ActivityKind.WAITING_FOR_CHILD: "HD509",
    ActivityKind.WAITING_FOR_WORKER: "HD503",
    ActivityKind.COMPUTING: "HD501",
}
"""What the thread at the end of a chain does → the cause; any other is HD505."""


def own_clauses(chain: Chain) -> list[Message]:
    """The same for the threads of one rank, after a clause on its main thread: 'its thread `uploader` is …'."""
    found: list[Message] = []
    for before, hop in pairwise(chain.hops):
        holds: Message = [", which holds it since ", line_of(before.lock.frame), ","] if before.lock is not None else ""
        if not hop.node.is_main:
            found.append([f"its thread `{hop.node.thread.name}`", holds, " ", _doing(chain, hop, own=True)])
    return found


def _doing(chain: Chain, hop: Hop, *, own: bool = False) -> Message:
    """'waits at a.py:3 for the lock `LOCK`, which …'; 'is waiting on a queue at a.py:9 run()'."""
    if hop.lock is None:
        return ["is ", state(hop.node)]
    if own:
        return ["waits at ", place(hop.node.where), f" for the lock `{hop.lock.name}`"]
    who = thread_name(chain.after(hop))
    at: Message = ["waits at ", place(hop.node.where), f" for the lock `{hop.lock.name}`, which "]
    return [at, who, " holds since ", line_of(hop.lock.frame)]


def state(node: Node) -> Message:
    """'waiting on a queue at serve.py:17 serve()', to follow 'is'."""
    return [thread_wait_of(node).text, [" at ", place(node.where)] if node.where is not None else ""]


def thread_name(node: Node) -> Message:
    """'thread `server` of rank 0', 'the main thread of rank 0'."""
    which = "the main thread" if node.is_main else f"thread `{node.thread.name}`"
    return [which, " of ", Ranks((node.rank,))]
