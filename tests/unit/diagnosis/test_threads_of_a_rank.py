"""Calls that come from several threads of a rank: which of them race, and which are one thread's by another name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangdoc.diagnosis import diagnose
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.journal import Call, Journal, ProcessGroup
from hangdoc.model.process import Frame, Process, ProcessState, Thread
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
MAIN = ("python", 11)
LINES = {"forward": 10, "backward": 0, "barrier": 30, "save": 40}
OPS = {"forward": "all_gather", "backward": "reduce_scatter", "barrier": "barrier", "save": "all_gather"}


def rank(number: int, calls: list[tuple[str, tuple[str, int]]], waiting: int = 1) -> RankSnapshot:
    """A rank of two whose threads issued these calls, of which the last ``waiting`` have not completed. It stands in
    the last one of its main thread."""
    stacks = [
        (Frame(C10D, 3000, OPS[what]), *((Frame("/job/train.py", line, what),) if line else ()))
        for what, line in LINES.items()
    ]
    made = tuple(
        Call("0", at, at, OPS[what], list(LINES).index(what), created_ns=10**9 * (90 + at) + number,
             completed=at <= len(calls) - waiting, thread_id=thread[1], thread_name=thread[0])
        for at, (what, thread) in enumerate(calls, 1)
    )  # fmt: skip
    stand = stacks[next(call.stack for call in reversed(made) if call.thread_id == MAIN[1] and not call.completed)]
    thread = Thread(100 + number, "MainThread", "S", "futex_do_wait", "202", 5.0, frames=stand, python_id=MAIN[1])
    look = ProcessState(99.0, "S", 5.0, threads=(thread,))
    return RankSnapshot(
        number,
        "node",
        "probe",
        2,
        process=Process(100 + number, 1, "python", looks=(look, replace(look, at=100.0))),
        journal=Journal("probe", (ProcessGroup("0", (0, 1), "default_pg", "cpu:gloo"),), made, stacks=tuple(stacks)),
    )


def verdict(*ranks: RankSnapshot) -> Diagnosis:
    return diagnose(JobSnapshot(100.0, "watch", stalled_for=30.0, stall_after=30.0, world_size=2, ranks=ranks))


@pytest.mark.parametrize("device", ["pt_autograd_0", "pt_autograd_127"])
def test_the_engine_that_runs_backward_races_with_nobody(device: str) -> None:
    engine = (device, 77)
    step = [("forward", MAIN), ("backward", engine), ("barrier", MAIN)]
    whole, skipped = step * 3, step + step[:2] + step
    # One barrier is skipped, and the calls of both threads follow: each rank makes every call later, too.
    found = verdict(rank(0, [*whole, ("forward", MAIN)], waiting=3), rank(1, [*skipped, ("forward", MAIN)], waiting=3))
    assert found.cause is not None
    assert found.cause.code == "HD101"
    assert "thread" not in found.verdict
    assert "barrier" in found.verdict


def race() -> tuple[RankSnapshot, RankSnapshot]:
    writer = ("checkpoint", 55)
    steps = [("forward", MAIN)] * 3
    return (
        rank(0, [*steps, ("save", writer), ("barrier", MAIN)], waiting=2),
        rank(1, [*steps, ("barrier", MAIN), ("save", writer)], waiting=2),
    )


@pytest.mark.xfail(strict=True, reason="told by a rule that is gone, and by no general mechanism yet")
def test_two_threads_of_the_program_race() -> None:
    found = verdict(*race())
    assert found.cause is not None
    assert found.cause.code == "HD108"
    assert "was not seen" not in found.sure


@pytest.mark.xfail(strict=True, reason="told by a rule that is gone, and by no general mechanism yet")
def test_threads_that_were_never_seen_to_wait_at_once_may_take_turns() -> None:
    """The same, and the ranks met again behind it: nobody saw whether one of the threads waits for the other."""

    def gone_on(before: RankSnapshot, last: str) -> RankSnapshot:
        assert before.journal is not None
        done = [replace(call, completed=True, op="barrier") for call in before.journal.calls]
        more = replace(done[0], sequence=6, op_id=6, op=OPS[last], completed=False, stack=list(LINES).index(last),
                       created_ns=10**9 * 97)  # fmt: skip
        return replace(before, journal=replace(before.journal, calls=(*done, more)))

    first, second = race()
    found = verdict(gone_on(first, "forward"), gone_on(second, "barrier"))
    assert found.cause is not None
    assert found.cause.code == "HD108"
    assert "whether one of the threads waits for the other was not seen" in found.sure


def test_one_thread_s_own_order_is_no_race() -> None:
    """Another thread of the rank once communicated; the two calls that clash are the main thread's own."""
    other = ("checkpoint", 55)
    both = [("save", other), ("forward", MAIN)]
    found = verdict(
        rank(0, [*both, ("barrier", MAIN), ("forward", MAIN)], waiting=2),
        rank(1, [*both, ("forward", MAIN), ("barrier", MAIN)], waiting=2),
    )
    assert found.cause is not None
    assert found.cause.code != "HD108"
