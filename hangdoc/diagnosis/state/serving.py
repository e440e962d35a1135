"""Threads that answer what other processes ask over a socket: which one serves a connection, and how many at a time."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.bounds import DEEPEST
from hangdoc.diagnosis.frames.landmarks import below_user, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import is_in, user_stack
from hangdoc.diagnosis.source.calls_between import places_of_methods, would_end
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import LOOPS, holds, last_name, walk
from hangdoc.diagnosis.state.process import thread_files
from hangdoc.model.process import Frame, Process, Stack, Thread


def other_end(target: str) -> str:
    """'socket:tcp B to A' of 'socket:tcp A to B (ESTABLISHED)'."""
    family, _, ends = target.partition(" (")[0].partition(" ")
    here, _, there = ends.partition(" to ")
    return f"{family} {there} to {here}"


def serving(process: Process, asking: Thread, end: str, sources: Sources) -> tuple[Thread | None, bool]:
    """(the thread other than ``asking`` that serves a socket of this name, whether it waits for data from it); None if
    several may.

    The one that is blocked on it; else the only one that works on a request and takes them in turn; else the only one,
    or one of those that meet at one line, of those that wait for no other socket and whose code reads or writes
    sockets. The main thread counts where no other does.
    """
    last = process.last
    threads = [t for t in (last.threads if last is not None else ()) if user_stack(t.frames) and t is not asking]
    for thread in threads:
        if any(file.target.partition(" (")[0] == end for file in thread_files(process, thread)):
            return thread, thread.tid != process.pid
    # Whoever asks such a server waits for what it is at, and that may wait at another socket.
    at_work = [thread for thread in threads if serves_in_turn(thread, sources) and _is_at_work(thread)]
    if len(at_work) == 1:
        return at_work[0], False
    alone = at_its_address(process, {address(end)}, sources)
    if alone is not None and alone is not asking and alone.tid != process.pid:
        return alone, False
    free = [
        thread
        for thread in threads
        if not any(file.target.startswith("socket:") for file in thread_files(process, thread))
        and any(_handles_sockets(frame, sources) for frame in thread.frames)
    ]
    others = [thread for thread in free if thread.tid != process.pid] or free
    # Several that stand at one line where they meet wait for the same.
    met = len({_place(user_stack(thread.frames)[0]) for thread in others}) == 1 and all(map(meets, others))
    return (others[0] if met or len(others) == 1 else None), False


def at_its_address(process: Process, here: set[str], sources: Sources) -> Thread | None:
    """The only thread beside the main thread that runs the program's code, if it waits for data at one of these
    addresses of its own, and has accepted the connections itself: it serves all that connect there, one after the
    other. Else each connection may have a thread, which waits for its client as a matter of course, and others of which
    may have died."""
    last = process.last
    threads = [t for t in last.threads if t is not last.main] if last is not None else []
    if any(_accepts(process, thread) for thread in threads):
        return None
    beside = [thread for thread in threads if user_stack(thread.frames)]
    files = [file for thread in beside for file in thread_files(process, thread)]
    there = any(address(file.target.partition(" (")[0]) in here for file in files)
    return beside[0] if len(beside) == 1 and there and _has_accepted(beside[0], sources) else None


def _has_accepted(thread: Thread, sources: Sources) -> bool:
    """True if a function on the thread's stack accepts connections, or calls one that does."""
    own = {plain(frame.function).rpartition(".")[2] for frame in user_stack(thread.frames)}
    accepting = {getattr(each.function, "name", "") for each in sources.user_calls(*names("takes_connection"))}
    callers = {getattr(each.function, "name", "") for name in accepting for each in sources.user_calls(name)}
    return not own.isdisjoint(accepting | callers)


def _accepts(process: Process, thread: Thread) -> bool:
    files = thread_files(process, thread)
    accepts = any(f.operation in names("accept", of="kernel") or " listening on " in f.target for f in files)
    library = any(is_in(frame, "server_file", "serves_in_turn") for frame in thread.frames)
    return accepts or (library and not user_stack(thread.frames))


def address(end: str) -> str:
    """'A' of 'socket:tcp A to B', the address that all connections to one server have; 'unix' of unix sockets, which
    have none that shows."""
    return "unix" if end.startswith("socket:unix ") else end.partition(" to ")[0].rpartition(" ")[2]


def meets(thread: Thread) -> bool:
    """True if the thread waits at a barrier, on an event or on a condition."""
    below = below_user(thread.frames)
    waits = below and below[-1].file.endswith(names("threading_file"))
    return bool(waits) and plain(below[-1].function) in ("wait", "wait_for")


def serves_in_turn(thread: Thread, sources: Sources) -> bool:
    """True if the thread works on a request, and takes the next one only when that is answered.

    Examples: the handler of an `HTTPServer`, which is not a `ThreadingHTTPServer`; handle() in `while True: ⏎ conn, _ =
    server.accept() ⏎ handle(conn)`.
    """
    if any(is_in(frame, "server_file", "serves_in_thread") for frame in thread.frames):
        return False
    own = user_stack(thread.frames)
    if own and any(is_in(frame, "server_file", "serves_in_turn") for frame in _outside(thread.frames, own[0])):
        return True
    return any(_accepts_in_a_loop(frame, sources) for frame in own)


def _is_at_work(thread: Thread) -> bool:
    """True if a server's thread is in the program's code, and not on the way to its next request."""
    outer = next((i for i, f in enumerate(thread.frames) if is_in(f, "server_file", "serves_in_turn")), None)
    return outer is None or bool(user_stack(thread.frames[:outer]))


def asked_of(thread: Thread) -> str:
    """The function of the program that such a thread runs for the request: 'do_POST', 'handle'."""
    own = user_stack(thread.frames)
    if not any(is_in(frame, "server_file", "serves_in_turn") for frame in thread.frames):
        return plain(own[0].function)
    inner = thread.frames[: next(i for i, f in enumerate(thread.frames) if is_in(f, "server_file", "serves_in_turn"))]
    return plain(user_stack(inner)[-1].function)


def ended_by_requests(thread: Thread, name: str, methods: tuple[str, ...], sources: Sources) -> bool:
    """True if the wait on the object ends by a further request to the same server alone: all lines that end it are in
    functions that only requests run.

    Example: do_GET() waits for `self.arrived.wait()`, and `arrived.set()` stands in do_POST() of the same handler.
    """
    places = places_of_methods(name, methods, sources)
    return bool(places) and all(_run_by_a_request(place.function, thread, sources, DEEPEST) for place in places)


def _run_by_a_request(function: str, thread: Thread, sources: Sources, deep: int) -> bool:
    called = asked_of(thread)
    if function == called or function in _entries(called, sources):
        return True
    callers = {getattr(call.function, "name", "<module>") for call in sources.user_calls(function)} - {function}
    return bool(deep and callers) and all(_run_by_a_request(each, thread, sources, deep - 1) for each in callers)


def _entries(called: str, sources: Sources) -> set[str]:
    """The functions that requests can run besides ``called``: those of the library's names in its class, and those that
    are registered with it."""
    found: set[str] = set()
    for _, tree in sources.user_trees():
        for node in walk(tree):
            if isinstance(node, ast.ClassDef):
                own = {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
                if called in own:
                    found |= {name for name in own if name.startswith("do_")}
            elif isinstance(node, ast.Call) and last_name(node.func) in names("registers_function"):
                found |= {last_name(arg) for arg in node.args}
    return found


def _outside(stack: Stack, inner: Frame) -> Stack:
    return stack[stack.index(inner) + 1 :]


def _accepts_in_a_loop(frame: Frame, sources: Sources) -> bool:
    tree = sources.function(frame.file, frame.line)
    loops = [n for n in walk(tree) if isinstance(n, LOOPS) and holds(n, frame.line)] if tree is not None else []
    calls = [n for loop in loops for n in walk(loop) if isinstance(n, ast.Call)]
    takes = [c for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr in names("takes_connection")]
    return bool(takes) and not any(holds(call, frame.line) for call in takes)


def _handles_sockets(frame: Frame, sources: Sources) -> bool:
    return frame.file.endswith(names("server_file")) or would_end(frame, "", names("socket_call"), sources)


def _place(frame: Frame) -> tuple[str, int]:
    return frame.file, frame.line
