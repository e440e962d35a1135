"""Whether a rank that leads the others by commands has nothing to do: it waits for the next request from outside.

The others then wait in the call that brings them the next command, and all of that is as it should be.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from hangdoc.diagnosis.bounds import LISTED
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import below_user, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.calls_between import places_of_methods, receiver_of, would_end
from hangdoc.diagnosis.source.guards import loops_around
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, innermost_loop, walk
from hangdoc.diagnosis.state.process import at_rest, is_moving, thread_files
from hangdoc.model.kinds import MESSAGES, ActivityKind
from hangdoc.model.process import Process, Stack, Thread

_PUTTING = ("put", "put_nowait")
_TAKING = ("get",)


@dataclass(frozen=True, slots=True)
class Feeder:
    """The thread through which requests come in. ``thread`` is None where it is the rank's main thread itself;
    ``text`` follows 'is': 'waiting in accept4 on socket:tcp listening on 127.0.0.1:8000'."""

    thread: Thread | None
    text: str


def waits_for_requests(case: Case, rank: int) -> Feeder | None:
    """Where the requests come in that the rank waits for; None where it waits for anything else.

    Its main thread takes the next request in a loop, and is itself, or has its queue filled by a thread that is, in a
    wait that only the outside ends: for a connection, for a line of the standard input, for the next look into a
    folder. All others wait for what this rank sends out. Example: rank 0 in `command = inbox.get()`, its thread in
    `sock.accept()`, the others in broadcast. A thread that has ended, or waits for a lock, feeds nobody: None.
    """
    process = case.ranks[rank].process if rank in case.ranks else None
    main = process.last.main if process is not None and process.last is not None else None
    if process is None or main is None or is_moving(process) or rank in case.deadlocks or rank in case.held:
        return None
    if not _serves(case, rank) or not _in_loop(case.sources, main.frames):
        return None
    text = _asks_outside(process, main)
    return Feeder(None, text) if text else _fed(process, main, case.sources, LISTED)


def _serves(case: Case, rank: int) -> bool:
    """True if every other rank waits for data that this one sends out."""
    others = [activity for activity in case.activities.values() if activity.rank != rank]
    return bool(others) and all(
        (activity.op or "").lstrip("_") in names("from_one_rank")
        or (activity.kind in MESSAGES and activity.kind is ActivityKind.RECV and activity.peer == rank)
        for activity in others
    )


def _in_loop(sources: Sources, stack: Stack) -> bool:
    trees = ((frame, sources.function(frame.file, frame.line)) for frame in user_stack(stack))
    return any(loops_around(tree, frame.line) for frame, tree in trees)


def _asks_outside(process: Process, thread: Thread) -> str:
    """What the thread does, if it waits for whoever may ask it something; '' for any other wait."""
    wait = at_rest(process, thread, thread.frames)
    files = thread_files(process, thread)
    if any(file.operation in names("accept", of="kernel") or " listening on " in file.target for file in files):
        return wait.text if wait.kind is ActivityKind.IO else "waiting for a connection"
    if any(file.fd == 0 and file.operation == "read" for file in files):
        return wait.text
    served = any(frame.file.endswith(names("server_file")) for frame in thread.frames)
    return "waiting for a connection" if served and not user_stack(thread.frames) and thread.state == "S" else ""


def _fed(process: Process, thread: Thread, sources: Sources, most: int) -> Feeder | None:
    """The thread at which requests come in that the thread takes from a queue; None if it takes none, or none come."""
    below, own = below_user(thread.frames), user_stack(thread.frames)
    method = plain(below[-1].function) if below and below[-1].file.endswith(names("queue_file")) else ""
    if method not in _TAKING or not own or not most or process.last is None:
        return None
    queue = receiver_of(own[0], method, sources)
    if not queue or not places_of_methods(queue, _PUTTING, sources):
        return None
    for other in process.last.threads:
        if other.tid == thread.tid or not other.frames:
            continue
        frames = user_stack(other.frames)
        if frames and not any(would_end(frame, queue, _PUTTING, sources) for frame in frames):
            continue
        text = _asks_outside(process, other) or (_looks_again(process, other, queue, sources) if frames else "")
        if text:
            return Feeder(other, text)
        found = _fed(process, other, sources, most - 1) if frames else None
        if found is not None:
            return found
    return None


def _looks_again(process: Process, thread: Thread, queue: str, sources: Sources) -> str:
    """What the thread does, if it sleeps in a loop each round of which can fill the queue.

    Example: `while True: ⏎ for name in new_files(): ⏎ jobs.put(name) ⏎ time.sleep(1)`. A loop that only sleeps, as
    `while not ready: ⏎ time.sleep(1)`, waits for something else: ''.
    """
    wait = at_rest(process, thread, thread.frames)
    if wait.kind is not ActivityKind.SLEEPING:
        return ""
    for frame in user_stack(thread.frames):
        tree = sources.function(frame.file, frame.line)
        inner = innermost_loop(tree, frame.line)
        if inner is not None:
            return wait.text if _fills(inner, queue) else ""
    return ""


def _fills(loop: ast.AST, queue: str) -> bool:
    last = queue.rpartition(".")[2]
    return any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in _PUTTING
        and dotted(call.func.value).rpartition(".")[2] == last
        for call in walk(loop)
    )
