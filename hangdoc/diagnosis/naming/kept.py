"""What the culprits keep while they wait, and others need: a lock of theirs, or the event loop that their wait blocks.

Hold and wait is the second of the four conditions of a deadlock (Coffman, Elphick, Shoshani 1971). Example: a thread of
rank 0 is in all_reduce under `with guard:`, and rank 0's main thread, whose calls the others await, waits for `guard`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from hangdoc.diagnosis.causes.phrases import at, line_of, place
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.hypotheses.forms import FormKind
from hangdoc.diagnosis.naming.facts import Facts
from hangdoc.model.kinds import COMMUNICATING, ActivityKind
from hangdoc.model.message import Message, Ranks
from hangdoc.model.process import Frame, Stack


@dataclass(frozen=True, slots=True)
class Kept:
    """The lock ``name``, held since ``since`` by whoever waits at ``where``: ``thread``, '' for the main thread, of
    ``rank``. ``op``: the call of the job that it waits in, '' for another wait."""

    rank: int
    name: str
    since: Frame
    where: Frame | None
    thread: str
    op: str = ""


def lock_kept(facts: Facts) -> Kept | None:
    """The lock that a culprit holds over its wait, and that this wait, or its own main thread, needs."""
    for rank in facts.culprits:
        held = facts.case.held.get(rank)
        if held is not None:
            return Kept(rank, held.name, held.frame, held.call.frame, held.holder, held.call.op)
    for chain in facts.case.chains.values():
        hops = (*chain.circle, *chain.circle[:1])
        for before, hop in pairwise(hops):
            if before.lock is not None and hop.node.rank in facts.culprits:
                node, thread = hop.node, "" if hop.node.is_main else hop.node.thread.name
                return Kept(node.rank, before.lock.name, before.lock.frame, node.where, thread)
    return None


def lock_waited_for(facts: Facts, kept: Kept) -> Message:
    """'rank 0 waits at train.py:92 step() for the lock `guard`, which its thread `export` holds in all_reduce at …';
    '' where it is not the main thread that waits."""
    own = facts.own
    if own is None or own.rank != kept.rank or not kept.thread:
        return ""
    holds: Message = [f"which its thread `{kept.thread}` holds in {kept.op}" if kept.op else "", at(kept.where)]
    return [Ranks((kept.rank,)), " waits", at(own.where), f" for the lock `{kept.name}`, ", holds]


def why_kept(kept: Kept) -> Message:
    """'`guard` is taken at train.py:71 run() and not let go before that wait at train.py:66 ends'."""
    return [f"`{kept.name}` is taken at ", place(kept.since), " and kept over the wait at ", line_of(kept.where)]


def let_go(kept: Kept) -> Message:
    """What to do about it."""
    return [f"let go of `{kept.name}` before the wait at ", line_of(kept.where), " (copy what that needs under it)"]


def is_circle_of_locks(facts: Facts) -> bool:
    """True if each of the culprits waits for a lock that another one of them holds."""
    held = [{*facts.needs.holders(rank)} & {*facts.culprits} for rank in facts.culprits]
    return len(held) > 1 and all(held)


def blocks_its_loop(facts: Facts) -> Frame | None:
    """The function that an event loop runs on each of the culprits, and that blocks it in a call; None where none does,
    or where nobody is known to wait for more than the calls of the job."""
    found = [_task(a.stack) for rank in facts.culprits if (a := facts.case.activities.get(rank)) is not None]
    calls = facts.own is not None and facts.own.kind in COMMUNICATING
    waited = facts.form.kind == FormKind.MISSED and facts.owed is not None and facts.owed.kind not in COMMUNICATING
    lives = waited and facts.owed is not None and facts.owed.kind != ActivityKind.STORE_WAIT
    return found[0] if lives and calls and found and None not in found else None


def _task(stack: Stack) -> Frame | None:
    """The outermost function of the user's that an event loop runs (asyncio/events.py, Python 3.8 to 3.14)."""
    for index, frame in enumerate(stack):
        if frame.file.endswith("/asyncio/events.py") and plain(frame.function).rpartition(".")[2] == "_run":
            return next(reversed(user_stack(stack[:index])), None)
    return None


def why_blocked(facts: Facts, task: Frame) -> Message:
    """'train.py:140 run() runs in the event loop of rank 0 and blocks it there: …'."""
    run: Message = [place(task), " runs in an event loop, and its call blocks that: on ", Ranks(facts.culprits)]
    return [run, " nothing else that the loop serves goes on before it returns"]


IN_ONE_ORDER = "take these locks in one order everywhere, or let the first go before taking the second"
IN_A_THREAD = "let nothing block an event loop: make that call in a thread (`await asyncio.to_thread(…)`)"
