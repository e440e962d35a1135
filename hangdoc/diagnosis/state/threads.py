"""Threads as nodes: which thread would end the wait of another, in its process, behind its socket or its remote call.

A wait ends at the thread that would end it, and what that thread waits for is followed in turn. Example: rank 1 reads
from a socket whose other end thread `server` of rank 0 serves; `server` wants a lock that rank 0's main thread holds,
which is in all_reduce → rank 1 → server of rank 0 → main thread of rank 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property

from hangdoc.diagnosis.bounds import TRIED
from hangdoc.diagnosis.frames.landmarks import below_user, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import is_in, user_stack
from hangdoc.diagnosis.source.calls_between import (
    ending_requests,
    receiver_of,
    remote_function,
    task_function,
    would_end,
)
from hangdoc.diagnosis.source.locks import Holder, holders
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.state.process import Wait, at_rest, blocking_thread, is_shared_wait, kind_mark, thread_files
from hangdoc.diagnosis.state.serving import ended_by_requests, meets, other_end, serves_in_turn, serving
from hangdoc.model.kinds import COMMUNICATING, ActivityKind
from hangdoc.model.process import Frame, OpenFile, Process, ProcessKey, Thread
from hangdoc.model.snapshot import RankSnapshot

FOLLOWED = frozenset({ActivityKind.LOCK, ActivityKind.IO, ActivityKind.REMOTE_CALL})
"""What a rank waits in that a thread may end."""


class End(Enum):
    """How a chain of waiting threads ends."""

    OUTSIDE = auto()
    """The last thread works, or waits for something that no thread seen would end."""
    CALL = auto()
    """The last thread waits in a call that needs other ranks."""
    CIRCLE = auto()
    """The last thread waits for one that is in the chain already."""
    REQUEST = auto()
    """The last thread waits for a further request, and the one before it for the answer to its own."""


@dataclass(frozen=True, slots=True)
class Node:
    """One thread of a rank."""

    rank: int
    process: Process
    thread: Thread

    @property
    def where(self) -> Frame | None:
        """Its innermost user frame."""
        return next(iter(user_stack(self.thread.frames)), None)

    @property
    def is_main(self) -> bool:
        """True for the thread that decides what the rank does."""
        return self.thread == blocking_thread(self.process)


@dataclass(frozen=True, slots=True)
class Hop:
    """``node`` waits for the next one of its chain; ``lock``: for a lock that the next one holds."""

    node: Node
    lock: Holder | None = None


@dataclass(frozen=True, slots=True)
class Chain:
    """From a rank's thread to the thread at which its wait ends; in a CIRCLE the last waits for ``hops[back]``."""

    hops: tuple[Hop, ...]
    end: End
    back: int = 0
    asked: tuple[str, ...] = ()
    """Of a REQUEST: the functions that a further call has to run, where it is not the one that waits."""

    @property
    def last(self) -> Node:
        """The thread at which the wait ends."""
        return self.hops[-1].node

    @property
    def circle(self) -> tuple[Hop, ...]:
        """The hops that wait for each other; () where it ends otherwise."""
        return self.hops[self.back :] if self.end is End.CIRCLE else ()

    @property
    def lock(self) -> Hop | None:
        """The first hop that waits for a lock, of a circle in it; None where none does."""
        return next((hop for hop in (*self.circle, *self.hops) if hop.lock is not None), None)

    @property
    def through_a_servant(self) -> bool:
        """True if a thread of another rank that is not that rank's main thread is part of it."""
        return any(hop.node.rank != self.hops[0].node.rank and not hop.node.is_main for hop in self.hops)

    @property
    def needs_a_request(self) -> bool:
        """True if a thread of another rank, or one that the first rank asks over a socket of its own, waits for a
        further request before it answers."""
        servant = runs_remote_call(self.last.thread) or meets(self.last.thread)
        return self.end is End.REQUEST and not self.last.is_main and servant

    def needs(self, rank: int) -> tuple[int, ...]:
        """The ranks that ``rank``, at which the chain begins, waits for.

        The one at whose thread it ends; of a circle those whose main threads are in it, else all in it; where a servant
        waits for the next request, the rank that waits for its answer. () where that is ``rank`` itself.
        """
        ends = [self.last] if self.end is not End.REQUEST else [self.hops[-2].node]
        ends = [hop.node for hop in self.circle] or ends
        # A servant goes on when the circle breaks, whatever its rank's main thread waits for.
        mains = {node.rank for node in ends if node.is_main and self.circle} - {rank}
        return tuple(sorted(mains or {node.rank for node in ends} - {rank}))

    def after(self, hop: Hop) -> Node:
        """The thread that ``hop`` waits for."""
        at = self.hops.index(hop) + 1
        return self.hops[at if at < len(self.hops) else self.back].node


@dataclass(frozen=True)
class Threads:
    """All threads of all ranks, and the chains between them."""

    ranks: Mapping[int, RankSnapshot]
    sources: Sources

    @cached_property
    def _owners(self) -> dict[ProcessKey, int]:
        """Process of a rank, without children → rank."""
        return {ProcessKey(s.host, s.process.pid): r for r, s in self.ranks.items() if s.process is not None}

    @cached_property
    def _handlers(self) -> list[Node]:
        """The threads that run functions which other ranks called."""
        found = []
        for rank, snapshot in self.ranks.items():
            for thread in _python_threads(snapshot.process):
                if runs_remote_call(thread):
                    assert snapshot.process is not None  # it has threads
                    found.append(Node(rank, snapshot.process, thread))
        return found

    def chain(self, rank: int) -> Chain | None:
        """What the rank's main thread waits for, from thread to thread; None if it is for no thread that was seen."""
        process = self.ranks[rank].process
        thread = blocking_thread(process) if process is not None else None
        if process is None or thread is None:
            return None
        node = Node(rank, process, thread)
        hops: list[Hop] = []
        while len(hops) < TRIED:
            following, lock, answers = self._next(node)
            if following is None:
                hops.append(Hop(node))
                end, asked = self._end(node, serves=len(hops) > 1 and _asks_over_socket(hops[-2].node, node))
                return Chain(tuple(hops), end, asked=asked) if len(hops) > 1 else None
            hops.append(Hop(node, lock))
            seen = [(hop.node.rank, hop.node.thread.tid) for hop in hops]
            if (following.rank, following.thread.tid) in seen:
                back = seen.index((following.rank, following.thread.tid))
                return Chain(tuple(hops), End.CIRCLE, back)
            if answers:
                return Chain((*hops, Hop(following)), End.REQUEST)
            node = following
        return None

    def _end(self, node: Node, *, serves: bool) -> tuple[End, tuple[str, ...]]:
        """What a thread waits for that no thread seen would end, and the functions that would, if they were called.
        ``serves``: another process, or thread, has asked it for something."""
        if _kind(node.thread) in COMMUNICATING:
            return End.CALL, ()
        waits = awaited_object(node, self.sources)
        serves = serves and not node.is_main and meets(node.thread)
        if waits is None or not (serves or node in self._handlers):
            return End.OUTSIDE, ()
        # A function that others call, and that itself sets what it waits for, waits for a call of another rank.
        if any(would_end(frame, *waits, self.sources, ever=True) for frame in user_stack(node.thread.frames)):
            return End.REQUEST, ()
        if serves_in_turn(node.thread, self.sources) and ended_by_requests(node.thread, *waits, self.sources):
            return End.REQUEST, ()
        others = [t for t in _python_threads(node.process) if t.tid != node.thread.tid]
        asked = ending_requests(*waits, self.sources) if not _may_end(others, node, self.sources) else ()
        return (End.REQUEST if asked else End.OUTSIDE), asked

    def _next(self, node: Node) -> tuple[Node | None, Holder | None, bool]:
        """(the thread that ends the wait of ``node``, the lock it holds, whether it waits for ``node`` in turn)."""
        thread = node.thread
        if thread.state not in ("S", "") or not thread.frames:  # '': a tool that does not say it printed the stack
            return None, None, False
        kind = _kind(thread)
        called = remote_function(node.where, self.sources)
        if called or kind == ActivityKind.REMOTE_CALL:
            return self._handler(node, called), None, False
        if kind in COMMUNICATING:
            return None, None, False
        held = self._holder(node)
        if held is not None:
            return Node(node.rank, node.process, held.thread), held, False
        for file in thread_files(node.process, thread):
            answering, answers = self._behind(node, file)
            if answering is not None:
                return answering, None, answers
        other = _counterpart(node, self.sources) if kind == ActivityKind.LOCK else None
        return (Node(node.rank, node.process, other) if other is not None else None), None, False

    def _holder(self, node: Node) -> Holder | None:
        """The other thread of the process that holds the lock which the thread waits for."""
        if "futex" not in (node.thread.wchan or "futex") or is_shared_wait(node.thread):
            return None
        found = [h for h in holders(node.process, node.where, self.sources) if h.thread.tid != node.thread.tid]
        return found[0] if found else None

    def _handler(self, node: Node, called: str) -> Node | None:
        """The thread of another rank that runs the function which ``node`` called there; None if several may that do
        not wait at one line."""
        found = [
            handler
            for handler in self._handlers
            if handler.rank != node.rank
            and (not called or plain(user_stack(handler.thread.frames)[-1].function) == called)
        ]
        # Several that stand at one line wait for the same; on several ranks, if they have all called on.
        calling_on = all(_kind(handler.thread) == ActivityKind.REMOTE_CALL for handler in found)
        alike = len({(0 if calling_on else handler.rank, _place(handler.where)) for handler in found}) == 1
        return found[0] if alike else None

    def _behind(self, node: Node, file: OpenFile) -> tuple[Node | None, bool]:
        """(the thread that serves the other end of a socket, of another rank or the same, whether it reads from it)."""
        if not file.target.startswith(("socket:tcp ", "socket:unix ")):
            return None, False
        host = self.ranks[node.rank].host
        owners = [self._owners[key] for pid in file.peers if (key := ProcessKey(host, pid)) in self._owners]
        process = self.ranks[owners[0]].process if len(owners) == 1 else None
        if process is None:
            return None, False
        found, reads = serving(process, node.thread, other_end(file.target), self.sources)
        return (Node(owners[0], process, found) if found is not None else None), reads


def _asks_over_socket(asking: Node, asked: Node) -> bool:
    """True if ``asking`` waits for an answer of ``asked``: of another rank, or over a socket of its own one."""
    files = thread_files(asking.process, asking.thread)
    return asking.rank != asked.rank or any(file.target.startswith("socket:") for file in files)


def runs_remote_call(thread: Thread) -> bool:
    """True if the thread runs a function that another rank called."""
    return any(is_in(f, "remote_handler_file", "remote_handler") for f in thread.frames)


def _kind(thread: Thread) -> ActivityKind | None:
    mark = kind_mark(thread.frames)
    return mark.kind if mark is not None else None


def _python_threads(process: Process | None) -> Iterator[Thread]:
    """The threads that run code of the user's, the main thread first."""
    threads = process.last.threads if process is not None and process.last is not None else ()
    return (thread for thread in threads if user_stack(thread.frames))


def _counterpart(node: Node, sources: Sources) -> Thread | None:
    """The only other thread whose code may yet end the wait: take from its queue, set its event, return."""
    where = node.where
    if where is None:
        return None
    below = below_user(node.thread.frames)
    method, library = (plain(below[-1].function), below[-1].file) if below else ("", "")
    others = [thread for thread in _python_threads(node.process) if thread.tid != node.thread.tid]
    if library.endswith(names("future_file")):
        return _only(_working_for(others, where, sources))
    if library.endswith("/threading.py") and method == "join":
        return _only(_joined(others, where, sources))
    waits = awaited_object(node, sources)
    if waits is None or waits[1] == _MET:
        return None  # who stands at a barrier ends no wait: one more has to come
    return _only(_may_end(others, node, sources))


def _may_end(others: Iterable[Thread], node: Node, sources: Sources) -> list[Thread]:
    """Those of the other threads whose code may yet end the wait on an object."""
    waits = awaited_object(node, sources)
    if waits is None:
        return []
    # Who stands at the same line waits for the same call of somebody else, whatever it does after its wait.
    beside = [thread for thread in others if _place(user_stack(thread.frames)[0]) != _place(node.where)]
    return [t for t in beside if any(would_end(f, *waits, sources) for f in user_stack(t.frames))]


def _place(frame: Frame | None) -> tuple[str, int] | None:
    return (frame.file, frame.line) if frame is not None else None


def awaited_object(node: Node, sources: Sources) -> tuple[str, tuple[str, ...]] | None:
    """(what the thread waits on, the methods that end such a wait): ('self.jobs', ('get', 'get_nowait')) at
    `self.jobs.put(data)`; None where it waits on no object that threads share."""
    below = below_user(node.thread.frames)
    if node.where is None or not below or _kind(node.thread) != ActivityKind.LOCK:
        return None
    method = plain(below[-1].function)
    met = method == "wait" and below[-1].function.endswith("Barrier.wait")  # who comes ends the wait of all
    opposite = _MET if met else _OPPOSITES.get(method, ())
    receiver = receiver_of(node.where, method, sources)
    return (receiver, opposite) if receiver and opposite else None


def _working_for(threads: Iterable[Thread], where: Frame, sources: Sources) -> list[Thread]:
    """The pool's workers that run a task; only those that run the function which the waiting line's task has."""
    task = task_function(where, sources)
    found = [t for t in threads if any(is_in(f, "pool_worker_file", "pool_worker") for f in t.frames)]
    return [t for t in found if not task or plain(user_stack(t.frames)[-1].function) == task]


def _joined(threads: list[Thread], where: Frame, sources: Sources) -> list[Thread]:
    """The thread that the line joins: by its name, else by the class that its run() belongs to, else any."""
    receiver = receiver_of(where, "join", sources).rpartition(".")[2]
    by_name = [t for t in threads if receiver and t.name == receiver]
    value = next((local.value.strip("<>") for local in where.locals if local.name == receiver), "")
    by_class = [t for t in threads if value and user_stack(t.frames)[-1].function.startswith(f"{value}.")]
    return by_name or by_class or threads


def _only(threads: list[Thread]) -> Thread | None:
    return threads[0] if len(threads) == 1 else None


_MET = ("wait", "abort")
"""What ends a wait at a `threading.Barrier`."""
_OPPOSITES = {
    "put": ("get", "get_nowait"),
    "get": ("put", "put_nowait"),
    "join": ("task_done",),
    "wait": ("set", "notify", "notify_all"),
    "wait_for": ("notify", "notify_all"),
}
"""Method that waits → those of the same object that end the wait (Python 3.11's queue and threading)."""


def thread_wait_of(node: Node) -> Wait:
    """What a thread does, in words that follow 'is': 'waiting on a queue'."""
    mark = kind_mark(node.thread.frames)
    if mark is not None and mark.kind == ActivityKind.IN_COLLECTIVE:
        within = f"a collective ({mark.words})" if mark.implicit else mark.words or "a collective"
        return Wait(mark.kind, f"in {within}")
    return at_rest(node.process, node.thread, node.thread.frames)
