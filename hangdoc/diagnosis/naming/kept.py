"""What the culprits keep while they wait, and others need: a lock of theirs, or the event loop that their wait blocks.

Hold and wait is the second of the four conditions of a deadlock (Coffman, Elphick, Shoshani 1971). Example: a thread of
rank 0 is in all_reduce under `with guard:`, and rank 0's main thread, whose calls the others await, waits for `guard`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from hangdoc.diagnosis.causes.phrases import at, line_of, place
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import task_of, user_stack
from hangdoc.diagnosis.hypotheses.forms import FormKind
from hangdoc.diagnosis.needs.need import NeedKind
from hangdoc.diagnosis.source.locks import held_since
from hangdoc.model.kinds import COMMUNICATING
from hangdoc.model.message import Message, Ranks
from hangdoc.model.process import Frame, Stack

if TYPE_CHECKING:
    from hangdoc.diagnosis.naming.facts import Facts


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
    for_main: bool = False
    """The main thread of that rank waits for the lock."""


def lock_kept(facts: Facts) -> Kept | None:
    """The lock that a thread of a culprit holds while it waits, and for which another thread waits, without which that
    wait, or the rank's calls, can't go on."""
    for rank in facts.culprits:
        held = facts.case.held.get(rank)
        if held is not None:
            return Kept(rank, held.name, held.frame, held.call.frame, held.holder, held.call.op, for_main=True)
    chains = facts.case.chains
    for chain in (*(chains[rank] for rank in facts.culprits if rank in chains), *chains.values()):
        for before, hop in pairwise((*chain.circle, *chain.circle[:1])):
            lock, node = before.lock, hop.node
            if lock is None or node.rank not in facts.culprits or _lets_go(facts, lock.name, node.where):
                continue
            main = before.node.is_main and before.node.rank == node.rank
            thread = "" if node.is_main else node.thread.name
            return Kept(node.rank, lock.name, lock.frame, node.where, thread, for_main=main)
    return _kept_between_ranks(facts)


def _kept_between_ranks(facts: Facts) -> Kept | None:
    """The lock that others wait to take at the head of the `with` in whose suite a culprit is in a call of the job."""
    missed, own = facts.missed, facts.own
    if missed is None or missed.kind != NeedKind.LOCK or missed.where is None or own is None:
        return None
    inside = [each for each in user_stack(own.stack) if held_since(missed.where, each, facts.case.sources)]
    if own.kind not in COMMUNICATING or not inside:
        return None
    return Kept(own.rank, missed.name, replace(inside[0], line=missed.where.line), own.where, "", own.op or "")


def _lets_go(facts: Facts, lock: str, where: Frame | None) -> bool:
    """True of a wait for the condition that the lock is: `with self.cond: self.cond.wait()` lets it go meanwhile."""
    line = facts.case.sources.line(where.file, where.line) if where is not None else None
    return f"{lock}.wait" in (line or "")


def lock_waited_for(facts: Facts, kept: Kept) -> Message:
    """'rank 0 waits at train.py:92 step() for the lock `guard`, which its thread `export` holds in all_reduce at …';
    '' where it is not the main thread that waits."""
    own = facts.own
    if own is None or own.rank != kept.rank or not kept.thread or not kept.for_main:
        return ""
    holds: Message = [f"which its thread `{kept.thread}` holds", f" in {kept.op}" if kept.op else "", at(kept.where)]
    return [Ranks((kept.rank,)), " waits", at(own.where), f" for the lock `{kept.name}`, ", holds]


def why_kept(kept: Kept) -> Message:
    """'`guard` is taken at train.py:71 run() and kept over the wait at train.py:66'."""
    return [_named(kept), " is taken at ", place(kept.since), " and kept over the wait at ", line_of(kept.where)]


def let_go(kept: Kept) -> Message:
    """What to do about it."""
    if kept.op:
        held: Message = [" where ", _named(kept), " is not held: others need it on their way there"]
        return [f"make the {kept.op} at ", line_of(kept.where), held]
    return ["let go of ", _named(kept), " before the wait at ", line_of(kept.where), " (copy what that needs under it)"]


def _named(kept: Kept) -> str:
    return f"`{kept.name}`" if kept.name else "the lock"


def is_circle_of_locks(facts: Facts) -> bool:
    """True if each of the culprits waits for a lock that another one of them holds."""
    held = [{*facts.needs.holders(rank)} & {*facts.culprits} for rank in facts.culprits]
    return len(held) > 1 and all(held)


def blocks_its_loop(facts: Facts) -> Frame | None:
    """The function that an event loop runs on each of the culprits, and that blocks it in a call of the job, where the
    others wait for what is sent or answered elsewhere in the program; None else."""
    missed = facts.missed
    if facts.form.kind != FormKind.MISSED or missed is None or missed.kind not in (NeedKind.ITEM, NeedKind.ANSWER):
        return None
    own = [activity for rank in facts.culprits if (activity := facts.case.activities.get(rank)) is not None]
    tasks = [_task(activity.stack) for activity in own if activity.kind in COMMUNICATING]
    lines = {(task.file, task.line) for task in tasks if task is not None}
    if not tasks or len(tasks) < len(facts.culprits) or None in tasks or len(lines) > 1:
        return None
    # What comes later in the functions that run now is not kept by the loop.
    functions = {(frame.file, plain(frame.function)) for activity in own for frame in user_stack(activity.stack)}
    sites = [(file, found.name) for file, line in missed.sites if (found := facts.program.function(file, line))]
    return None if any((file, plain(name)) in functions for file, name in sites) else tasks[0]


def _task(stack: Stack) -> Frame | None:
    """What an event loop runs there; None in a notebook, whose cells run in the loop of its kernel."""
    return None if any("/ipykernel/" in frame.file for frame in stack) else task_of(stack)


def why_blocked(facts: Facts, task: Frame) -> Message:
    """'train.py:140 run() runs in an event loop, and its call blocks that: on rank 0 nothing else …'."""
    run: Message = [place(task), " runs in an event loop, and its call blocks that: on ", Ranks(facts.culprits)]
    return [run, " nothing else that the loop serves goes on before it returns"]


IN_A_THREAD = "let nothing block an event loop: make that call in a thread (`await asyncio.to_thread(…)`)"
