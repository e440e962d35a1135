"""Looks, made by hand, at a rank that waits in a collective: what an injection's safety is judged by."""

from __future__ import annotations

from dataclasses import replace

from hangdoc.capture.inject import safety
from hangdoc.model.process import Frame, ProcessState, Thread
from hangdoc.model.snapshot import Unavailable

CONDITION = "202 0x55 0x189 0x0 0x0 0x0 0xffffffff"
MUTEX = "202 0x55 0x80 0x2 0x0 0x0 0x0"
EVENTS = "232 0x6 0x7f 0x40 0xa 0x0 0x0"
STACK = (Frame("/job/train.py", 7, "step"), Frame("/job/train.py", 20, "<module>"))


def state(main: Thread | None = None, *others: Thread, tracer: int = 0) -> ProcessState:
    threads = (main or thread(), *(others or (worker(),)))
    return ProcessState(at=0.0, state=threads[0].state, tracer_pid=tracer, threads=threads)


def thread(**changes: object) -> Thread:
    found = Thread(10, "python", "S", syscall=CONDITION, python_id=99, active=False, owns_gil=False, frames=STACK)
    return replace(found, **changes)  # type: ignore[arg-type]


def worker(tid: int = 11, name: str = "pt_gloo_runloop", syscall: str | None = CONDITION, state: str = "S") -> Thread:
    return Thread(tid, name, state, syscall=syscall)


def why(*looks: ProcessState) -> str:
    shut = safety.waiting(looks)
    return shut.why if isinstance(shut, Unavailable) else ""
