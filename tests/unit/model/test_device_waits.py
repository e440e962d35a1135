"""Whether two looks show a process that polls its device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangdoc.model.device_waits import waits_for_device
from hangdoc.model.process import Frame, Local, ProcessState, Stack, Thread

HERE = Frame("/job/train.py", 30, "train", (Local("step", "41"),))
DRIVER = Thread(72, "cuda-EvtHandlr", "S", "poll_schedule_timeout")


def looks(
    before: Thread, now: Thread | None = None, others: tuple[Thread, ...] = (DRIVER,)
) -> tuple[ProcessState, ProcessState]:
    main = now or replace(before, cpu=before.cpu + 1)
    return (
        ProcessState(100.0, "R", cpu=before.cpu, threads=(before, *others)),
        ProcessState(101.0, "R", cpu=main.cpu, threads=(main, *others)),
    )


def thread(stack: Stack = (HERE,), *, state: str = "R", gil: bool | None = False, native: Stack = ()) -> Thread:
    return Thread(71, "MainThread", state, active=True, owns_gil=gil, frames=stack, native_frames=native)


def test_a_rank_at_one_line_that_runs_without_the_gil_polls_its_device() -> None:
    assert waits_for_device(looks(thread()))


@pytest.mark.parametrize("state", ["S", "D"])
def test_a_rank_that_sleeps_does_not_poll(state: str) -> None:
    assert not waits_for_device(looks(thread(state=state)))


@pytest.mark.parametrize("gil", [True, None])
def test_a_rank_that_runs_python_does_not(gil: bool | None) -> None:
    assert not waits_for_device(looks(thread(gil=gil)))


def test_a_process_without_a_device_works_on_its_cpu() -> None:
    assert not waits_for_device(looks(thread(), others=()))


def test_a_rank_that_is_elsewhere_or_in_another_round_goes_on() -> None:
    later = replace(HERE, locals=(Local("step", "42"),))
    assert not waits_for_device(looks(thread(), thread((replace(HERE, line=31),))))
    assert not waits_for_device(looks(thread(), thread((later,))))


def test_a_rank_that_slept_in_between_goes_on() -> None:
    slept = replace(thread(), voluntary_switches=9)
    assert not waits_for_device(looks(thread(), slept))


def test_a_rank_that_was_watched_through_a_whole_step_waits_though_it_woke_up_at_one_moment() -> None:
    first, second = looks(thread(), replace(thread(), voluntary_switches=4))
    assert not waits_for_device((first, second))
    assert waits_for_device((first, replace(second, at=first.at + 13.0)))


@pytest.mark.parametrize(
    ("function", "polls"),
    [
        ("cudaStreamSynchronize", True),
        ("at::native::_local_scalar_dense_cuda(at::Tensor const&)", True),
        ("cuMemcpyDtoHAsync_v2", True),
        ("PKCS5_PBKDF2_HMAC", False),
        ("tokenizers::models::bpe::word::Word::merge_all", False),
    ],
)
def test_native_frames_tell_a_device_from_long_work_on_the_cpu(function: str, polls: bool) -> None:
    native = (Frame("libcuda.so.1", 0, "???"), Frame("lib.so", 0, function))
    assert waits_for_device(looks(thread(), thread(native=native))) == polls
