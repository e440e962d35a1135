"""Calls of which no recorder says when they end, beside the stacks of the threads that issued them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangdoc.capture.assemble import with_calls_under_way
from hangdoc.capture.read.probe_answers import ProbeCounters, ProbeDetails
from hangdoc.model.journal import Call, Journal
from hangdoc.model.process import Frame, ProcessState, Stack, Thread

C10D = "/v/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"
MAIN, WORKER = 7, 8
STEP = Frame("/job/train.py", 12, "step")
AT_40 = Frame("/job/train.py", 40, "<module>")


def issued(line: int = 12) -> Stack:
    """The stack of an all_reduce; the probe's hook is the innermost frame of some."""
    hook = Frame("/v/hangdoc/probe/hangdoc_probe_hooks.py", 300, "broadcast")
    return (hook, Frame(C10D, 4049, "broadcast"), replace(STEP, line=line), AT_40)


def inside(line: int = 12) -> Stack:
    """A thread that waits for it."""
    return (Frame(C10D, 4055, "Group.<locals>.broadcast"), replace(STEP, line=line, function="Model.step"), AT_40)


def completed(now: dict[int, Stack], *threads: int, unsure: tuple[int, ...] = (0, 1)) -> list[bool]:
    """Of calls #1, #2, … that ``threads`` issued: which have ended. ``now``: thread → its stack."""
    calls = tuple(Call("0", n, 0, "broadcast", 0, created_ns=n, thread_id=each) for n, each in enumerate(threads, 1))
    counters = ProbeCounters(1, 0, 2, 0, 0, {}, 1, True, 0, 0, False)
    details = ProbeDetails(counters, Journal("probe", calls=calls, stacks=(issued(),)), unsure_calls=unsure)
    looked = tuple(Thread(at, "python", "S", python_id=at, frames=frames) for at, frames in now.items())
    found = with_calls_under_way(details, ProcessState(0.0, "S", threads=looked))
    return [call.completed for call in found.journal.calls]


def test_the_newest_call_of_a_thread_that_is_inside_of_it_has_not_ended() -> None:
    assert completed({MAIN: inside()}, MAIN, MAIN) == [True, False]
    deeper = (Frame("/job/backend.py", 9, "wait"), *inside())
    assert completed({MAIN: deeper}, MAIN, MAIN) == [True, False]
    assert completed({MAIN: inside(), WORKER: inside()}, MAIN, WORKER) == [False, False]


@pytest.mark.parametrize(
    "now",
    [
        {MAIN: inside(13)},  # at another line
        {MAIN: inside()[1:]},  # it has returned
        {MAIN: (Frame(C10D, 4100, "all_reduce"), *inside()[1:])},  # in another call
        {WORKER: inside()},  # another thread is there
        {},
    ],
)
def test_any_other_may_have_ended(now: dict[int, Stack]) -> None:
    assert completed(now, MAIN, MAIN) == [True, True]


def test_what_a_recorder_knows_stays() -> None:
    assert completed({MAIN: inside()}, MAIN, MAIN, unsure=(0,)) == [True, True]
