"""Put the frames of suspended tasks into the stack of the thread whose asyncio loop runs them.

Seen from outside, a thread that is idle in its loop shows only the loop, not what its tasks await.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hangdoc.model.process import ProcessState, Stack, Thread

_BASE, _RUNNERS, _EVENTS = "/asyncio/base_events.py", "/asyncio/runners.py", "/asyncio/events.py"


def place_tasks(states: dict[int, ProcessState], suspended: Mapping[int, tuple[tuple[int, Stack], ...]]) -> None:
    """Complete ``states`` (by pid) in place. ``suspended``: by pid, (thread's Python id, its tasks' frames)."""
    for pid in states.keys() & suspended.keys():
        of_thread = dict(suspended[pid])
        threads = (_placed(thread, of_thread.get(thread.python_id or 0, ())) for thread in states[pid].threads)
        states[pid] = replace(states[pid], threads=tuple(threads))


def _placed(thread: Thread, tasks: Stack) -> Thread:
    """``thread`` with ``tasks`` between the loop and what started it, as if the loop's caller had called them.

    [select, run_forever, run_until_complete, main], [fetch] → [select, run_forever, fetch, run_until_complete, main].
    """
    idle = not any(frame.file.endswith(_EVENTS) and frame.function.endswith("_run") for frame in thread.frames)
    for at, frame in enumerate(thread.frames):
        if _starts_loop(frame.file, frame.function) and idle:
            return replace(thread, frames=thread.frames[:at] + tasks + thread.frames[at:])
    return thread


def _starts_loop(file: str, function: str) -> bool:
    function = function.rsplit(".", 1)[-1]
    return (file.endswith(_BASE) and function == "run_until_complete") or (
        file.endswith(_RUNNERS) and function == "run"
    )
