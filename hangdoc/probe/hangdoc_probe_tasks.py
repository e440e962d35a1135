"""Where the tasks of an asyncio event loop wait: while they are suspended, no thread's stack shows them."""

from __future__ import annotations

import sys

MOST_STEPS = 64  # tasks and frames on one way. Judgement

# The frame that runs a whole program in a loop, and the local that holds its task (Python 3.9 to 3.14; the second
# also where the loop is not written in Python, as uvloop's).
ROOTS = {
    ("/asyncio/base_events.py", "run_until_complete"): "future",
    ("/asyncio/runners.py", "run"): "task",
}
# Library functions that wait for other tasks without awaiting them, and their local that holds these tasks.
HOLDERS = {
    ("/asyncio/tasks.py", "_wait"): "fs",
    ("/asyncio/tasks.py", "wait_for"): "fut",
    ("/asyncio/taskgroups.py", "__aexit__"): "self",
}


def suspended(thread_frames):
    """(thread, frames innermost first) for each thread that is idle in ``asyncio``'s loop: from the program's own task
    over the tasks that it waits for to the place of the wait. ``thread_frames``: (thread, innermost frame).

    ``main()`` awaits ``gather(fetch())``, which awaits ``queue.get()``: frames of get, fetch, main.
    """
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or not hasattr(asyncio, "Task"):
        return []
    ways = [(thread, _way(_root(top), asyncio.Task, set())) for thread, top in thread_frames]
    return [(thread, frames[::-1]) for thread, frames in ways if frames]


def _root(frame):
    """The task that the thread's loop runs to its end; None if the loop runs a task or callback right now."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_run" and code.co_filename.endswith("/asyncio/events.py"):
            return None
        for (file, function), name in ROOTS.items():
            if code.co_name == function and code.co_filename.endswith(file):
                return frame.f_locals.get(name)
        frame = frame.f_back
    return None


def _way(task, kind, seen):
    """Frames outermost first; ``kind`` is asyncio's own class of tasks."""
    if not isinstance(task, kind) or id(task) in seen or len(seen) >= MOST_STEPS or kind.done(task):
        return []
    seen.add(id(task))
    own = _frames_of(kind.get_coro(task))
    beyond = [_way(one, kind, seen) for one in _awaited(task, own)]
    # A heartbeat that sleeps between two beats is not what the program waits for.
    return own + min((way for way in beyond if way), key=_sleeps, default=[])


def _sleeps(frames):
    code = frames[-1].f_code
    return code.co_name == "sleep" and code.co_filename.endswith("/asyncio/tasks.py")


def _frames_of(awaited):
    """The frames of a coroutine and of those that it awaits, outermost first."""
    frames = []
    while len(frames) < MOST_STEPS:
        mark = next((mark for mark in ("cr", "gi") if hasattr(type(awaited), mark + "_frame")), None)
        frame = getattr(awaited, mark + "_frame") if mark else None
        if frame is None:
            break
        frames.append(frame)
        awaited = awaited.cr_await if mark == "cr" else awaited.gi_yieldfrom
    return frames


def _awaited(task, frames):
    """The tasks and futures that the task waits for, as far as asyncio's own objects show."""
    for frame in frames[-2:]:
        for (file, function), name in HOLDERS.items():
            if frame.f_code.co_name == function and frame.f_code.co_filename.endswith(file):
                held = frame.f_locals.get(name)
                held = getattr(held, "_tasks", held)
                return list(held) if type(held) in (set, list, tuple) else [held]
    waiter = getattr(task, "_fut_waiter", None)
    children = getattr(waiter, "_children", None)  # what asyncio.gather() returns
    return children if type(children) is list else [waiter]
