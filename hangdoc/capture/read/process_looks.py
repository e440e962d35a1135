"""One look at many processes at once: the /proc files of all of them first, their Python stacks after that."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from hangdoc.capture.read import blocked_calls, procfs, stacks
from hangdoc.capture.read.children import Subject
from hangdoc.capture.safe.deadline import Task
from hangdoc.model.process import ProcessState
from hangdoc.model.snapshot import Unavailable

_PROC_SECONDS = 1.0
"""For all of /proc; a rank's files take milliseconds unless the kernel holds its memory lock. Judgement."""
_MAX_STACKS = 256
"""Of ranks and their children; py-spy takes 9 to 12 ms each (measured). Judgement."""
_MAX_ALARMS = 64
"""Threads of one process whose timeouts are read: some 10 µs each (measured). Judgement."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen, by pid, and why a state or a stack could not be read. A process that is gone is in neither."""

    states: dict[int, ProcessState]
    failures: dict[int, Unavailable]


def look_at(families: Iterable[Subject], *, keep_strings: bool = False, attributes: bool = False) -> Look:
    """Look at all processes of the families; takes at most some seconds, however they behave.

    ``attributes``: with the plain attributes of the objects that frames hold, which a probe would have told.
    """
    families = list(families)
    reading = [(family.pid, Task(partial(_states, family))) for family in families]
    states: dict[int, ProcessState] = {}
    failures: dict[int, Unavailable] = {}
    until = time.monotonic() + _PROC_SECONDS
    for pid, task in reading:
        found = _in_time(task, until)
        states.update(found or {})
        if found is None:
            failures[pid] = Unavailable("process", f"/proc/{pid} did not answer in time")
    # Ranks first: a job with very many children must not cost a rank's stack.
    members = [member for family in families for member in family.family() if member.pid in states]
    members.sort(key=lambda member: member.role != "rank")
    pids = [member.pid for member in members if _may_be_python(member)][:_MAX_STACKS]
    seconds = 1.5 + 0.05 * len(pids)
    dumped = stacks.dump(pids, deadline=seconds, keep_strings=keep_strings, attributes=attributes)
    for pid, threads in dumped.items():
        if not isinstance(threads, Unavailable):
            states[pid] = stacks.merge(pid, states[pid], threads)
        elif procfs.exists(pid):
            failures[pid] = threads
    return Look(states, failures)


def _states(family: Subject) -> dict[int, ProcessState]:
    looks = ((member.pid, procfs.look(member.pid)) for member in family.family())
    return {pid: _with_alarms(pid, state) for pid, state in looks if state is not None}


def _in_time(task: Task[dict[int, ProcessState]], until: float) -> dict[int, ProcessState] | None:
    try:
        return task.result(until)
    except TimeoutError:
        return None


def _with_alarms(pid: int, state: ProcessState) -> ProcessState:
    """The state with ``wakes_in`` of its threads: one that will wake by itself waits for nobody for good."""
    alarms = [blocked_calls.wakes_in(pid, thread) for thread in state.threads[:_MAX_ALARMS]]
    if all(seconds is None for seconds in alarms):
        return state
    timed = (replace(thread, wakes_in=seconds) for thread, seconds in zip(state.threads, alarms, strict=False))
    return replace(state, threads=(*timed, *state.threads[_MAX_ALARMS:]))


def _may_be_python(member: Subject) -> bool:
    return member.role in ("rank", "dataloader-worker") or procfs.is_python(member.pid)
