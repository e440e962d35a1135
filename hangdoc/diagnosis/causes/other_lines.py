"""The lines, beside those of main threads, at which the culprits' wait ends: of their threads and their children.

Example: rank 1 joins its thread `uploader`, which reads from a socket → 'rank 1, thread `uploader`: waiting in
recvfrom' at the thread's line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from hangdoc.diagnosis.blame.thread_blame import ThreadWait
from hangdoc.diagnosis.causes.wait_chain import Fault, Step, follow, threads_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.state.activity import python_op
from hangdoc.diagnosis.state.deadlock import Deadlock
from hangdoc.diagnosis.state.process import blocking_thread, kind_mark, mark_with_words
from hangdoc.diagnosis.state.threads import Chain, Node, thread_wait_of
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.process import Frame, Process, Thread

_DETAIL = re.compile(r"(?: on (?=socket:)| \().*")
"""What the verdict says of a wait and a note beside code has no room for: ' on socket:tcp 10.0.0.1:…'."""


class Line(NamedTuple):
    """What is said of one line of code, to follow the name of the rank: ', thread `uploader`: waiting on a queue'."""

    frame: Frame
    rank: int
    said: str


def other_lines(case: Case, blame: Blame[Explanation]) -> Iterator[Line]:
    """The lines of each culprit, from its main thread's wait on. A thread that waits behind a known chain is in it."""
    if isinstance(blame.found, ThreadWait):
        yield from _of_chain(blame.found.chain)
        return
    for rank in sorted(blame.culprits):
        held, deadlock, chain = case.held.get(rank), case.deadlocks.get(rank), case.chains.get(rank)
        if held is not None:
            yield Line(held.frame, rank, f"{_thread(held.holder)}: holds `{held.name}`")
        elif deadlock is not None and (deadlock.circle or deadlock.pool):
            yield from _of_deadlock(rank, deadlock)
        elif chain is not None:
            yield from _of_chain(chain)
        else:
            yield from _of_steps(case, rank)


def awaited_lock(case: Case, rank: int) -> str:
    """The lock that the rank's main thread waits for, as the source has it; '' where none is known."""
    held, deadlock, chain = case.held.get(rank), case.deadlocks.get(rank), case.chains.get(rank)
    if held is not None:
        return held.name
    if deadlock is not None and deadlock.circle:
        return deadlock.circle[0][1].name
    return chain.hops[0].lock.name if chain is not None and chain.hops[0].lock is not None else ""


def _of_chain(chain: Chain) -> Iterator[Line]:
    """Each thread of the chain behind its first, and where it took the lock that the one before waits for."""
    hops = [*chain.hops, chain.hops[chain.back]] if chain.circle else [*chain.hops]
    for before, hop in pairwise(hops):
        node = hop.node
        if before.lock is not None:
            yield Line(before.lock.frame, node.rank, f"{_of_node(node)}: holds `{before.lock.name}`")
        if node.where is not None and not node.is_main:
            wait = f"waits for `{hop.lock.name}`" if hop.lock is not None else _short(thread_wait_of(node).text)
            yield Line(node.where, node.rank, f"{_of_node(node)}: {wait}")


def _of_deadlock(rank: int, deadlock: Deadlock) -> Iterator[Line]:
    for frame in dict.fromkeys(deadlock.pool):
        yield Line(frame, rank, ", workers of its pool: waiting for a future")
    named = ""
    for where, holder in deadlock.circle:
        if named:
            yield Line(where, rank, f"{_thread(named)}: waits for `{holder.name}`")
        named = holder.thread.name
        yield Line(holder.frame, rank, f"{_thread(named)}: holds `{holder.name}`")


def _of_steps(case: Case, rank: int) -> Iterator[Line]:
    """The last child that the rank's wait leads to; where it leads to none, the threads that run code of the user's."""
    steps, process = follow(case, rank), case.ranks[rank].process
    child = next((step for step in reversed(steps) if step.process is not None), None)
    if child is not None and child.process is not None:
        thread = blocking_thread(child.process)
        where = _where(thread)
        if thread is not None and where is not None:
            doing = _doing(child, Node(rank, child.process, thread))
            yield Line(where, rank, f", {_title(child.process)}: {doing}")
    elif process is not None and steps:
        for thread in threads_of(process):
            frame, mark = _where(thread), kind_mark(thread.frames)
            wait = mark_with_words(thread.frames, mark.kind) if mark is not None and mark.kind is not None else None
            if frame is not None:
                doing = wait.words if wait is not None else "still runs"
                yield Line(frame, rank, f"{_thread(thread.name)}: {doing}")


def _doing(step: Step, node: Node) -> str:
    if step.fault is Fault.FORKED_LOCK:
        return "waits for a lock that no thread of it holds"
    stopped = node.process.last is not None and node.process.last.state in "Tt"
    if stopped:
        return "stopped"
    mark = kind_mark(node.thread.frames)
    called = python_op(node.thread.frames) if mark is not None and mark.kind == ActivityKind.IN_COLLECTIVE else ""
    return f"in {called}" if called else _short(thread_wait_of(node).text)


def _short(text: str) -> str:
    return _DETAIL.sub("", text)


def _title(process: Process) -> str:
    kind = "DataLoader worker" if process.role == "dataloader-worker" else "child process"
    return f"{kind} {process.pid}"


def _thread(name: str) -> str:
    if name == "MainThread":
        return ", main thread"
    return f", thread `{name}`" if name else ", another thread"


def _of_node(node: Node) -> str:
    return ", main thread" if node.is_main else _thread(node.thread.name)


def _where(thread: Thread | None) -> Frame | None:
    return next(iter(user_stack(thread.frames)), None) if thread is not None else None
