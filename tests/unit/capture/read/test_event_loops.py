"""Suspended tasks: what the probe tells of them, and where the capture puts it."""

from __future__ import annotations

import asyncio
import sys
import threading
import types
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import hangdoc
from hangdoc.capture.read.event_loops import place_tasks
from hangdoc.model.process import Frame, ProcessState, Thread

PROBE = Path(hangdoc.__file__).parent / "probe"
LIBRARY = "/usr/lib/python3.11/asyncio"


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    monkeypatch.syspath_prepend(str(PROBE))
    import hangdoc_probe_tasks

    yield hangdoc_probe_tasks
    sys.modules.pop("hangdoc_probe_tasks", None)


class Waiting:
    """A program in a loop of its own thread, looked at while all its tasks are suspended."""

    def __init__(self, program: Coroutine[Any, Any, None]) -> None:
        self.idle = threading.Event()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, args=(program,), daemon=True)

    def _run(self, program: Coroutine[Any, Any, None]) -> None:
        self.loop.call_later(0.2, self.idle.set)
        self.main = self.loop.create_task(program)
        try:
            self.loop.run_until_complete(self.main)
        except asyncio.CancelledError:
            pass
        finally:
            self.loop.close()

    def __enter__(self) -> tuple[int, types.FrameType]:
        self.thread.start()
        assert self.idle.wait(10)
        # The callback that set it is over when the loop has gone back to waiting.
        while not (frame := sys._current_frames()[self._ident()]).f_code.co_name.startswith("select"):
            pass
        return self._ident(), frame

    def _ident(self) -> int:
        assert self.thread.ident is not None
        return self.thread.ident

    def __exit__(self, *error: object) -> None:
        self.loop.call_soon_threadsafe(self.main.cancel)
        self.thread.join(10)
        assert not self.thread.is_alive()


async def never() -> None:
    await asyncio.Event().wait()


async def beats() -> None:
    while True:
        await asyncio.sleep(0.5)


async def in_gather() -> None:
    await asyncio.gather(beats(), never())


async def in_task() -> None:
    await asyncio.create_task(never())


async def in_wait() -> None:
    await asyncio.wait({asyncio.create_task(never())})


async def in_wait_for() -> None:
    await asyncio.wait_for(never(), 100)


async def in_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(never())


async def circle() -> None:
    me = asyncio.current_task()

    async def other() -> None:
        assert me is not None
        await asyncio.wait({me})

    await asyncio.wait({asyncio.create_task(other())})


@pytest.mark.parametrize("program", [never, in_gather, in_task, in_wait, in_wait_for, in_group])
def test_the_way_leads_to_what_is_awaited(tasks: types.ModuleType, program: Any) -> None:
    with Waiting(program()) as (ident, top):
        ((thread, frames),) = tasks.suspended([(ident, top)])
    assert thread == ident
    names = [frame.f_code.co_name for frame in frames]
    assert names[:2] == ["wait", "never"], names
    assert names[-1] == program.__name__


def test_tasks_that_wait_for_each_other_end_somewhere(tasks: types.ModuleType) -> None:
    with Waiting(circle()) as (ident, top):
        ((_, frames),) = tasks.suspended([(ident, top)])
    assert {"circle", "other"} <= {frame.f_code.co_name for frame in frames}


def test_a_task_that_is_being_run_is_on_the_stack_already(tasks: types.ModuleType) -> None:
    told = []

    async def looks() -> None:
        told.append(tasks.suspended([(threading.get_ident(), sys._getframe())]))

    asyncio.run(looks())
    assert told == [[]]


def test_a_thread_without_a_loop_has_none(tasks: types.ModuleType) -> None:
    assert tasks.suspended([(1, sys._getframe())]) == []


USER = Frame("/home/me/train.py", 5, "consume")
LOOP = (Frame("/usr/lib/python3.11/selectors.py", 468, "select"), Frame(f"{LIBRARY}/base_events.py", 1, "_run_once"))
ROOT = Frame(f"{LIBRARY}/base_events.py", 640, "BaseEventLoop.run_until_complete")


def state(*frames: Frame) -> ProcessState:
    return ProcessState(0.0, "S", threads=(Thread(7, "main", "S", python_id=70, frames=frames),))


def placed(states: ProcessState, thread: int = 70) -> tuple[Frame, ...]:
    known = {1: states}
    place_tasks(known, {1: ((thread, (USER,)),), 2: ()})
    return known[1].threads[0].frames


def test_tasks_stand_between_the_loop_and_what_started_it() -> None:
    assert placed(state(*LOOP, ROOT)) == (*LOOP, USER, ROOT)


def test_a_task_that_runs_meanwhile_is_left_alone() -> None:
    running = Frame(f"{LIBRARY}/events.py", 80, "Handle._run")
    assert placed(state(USER, running, ROOT)) == (USER, running, ROOT)


def test_another_thread_is_left_alone() -> None:
    assert placed(state(*LOOP, ROOT), thread=71) == (*LOOP, ROOT)
