"""How long ranks that poll their devices are looked at. A stand-in polls here: native code that runs without the GIL,
beside a thread with a name of a device's driver."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from hangdoc.capture.read import device_patience, procfs
from hangdoc.capture.read.children import Subject, subject
from hangdoc.capture.read.process_looks import Look, look_at
from hangdoc.model.device_waits import waits_for_device

_POLLS = """
import ctypes, hashlib, time

libc, thread = ctypes.CDLL(None), ctypes.c_ulong()
libc.pthread_create(ctypes.byref(thread), None, libc.sleep, ctypes.c_void_p(600))
libc.pthread_setname_np(thread, b"cuda-EvtHandlr")
print("ready", flush=True)
while True:
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", ROUNDS)
    time.sleep(0.001)
"""


@pytest.fixture
def polling(request: pytest.FixtureRequest) -> Iterator[int]:
    code = _POLLS.replace("ROUNDS", str(request.param))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process.pid
        finally:
            process.kill()


def family(pid: int) -> list[Subject]:
    found = subject(pid, "rank", procfs.table(), {pid})
    assert found is not None
    return [found]


def seen(pid: int) -> Look:
    return look_at(family(pid))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("polling", [10**9], indirect=True)
def test_a_process_that_polls_on_is_looked_at_for_longer(polling: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_patience, "STEP_SECONDS", 2.0)
    first = seen(polling)
    time.sleep(0.5)
    second = seen(polling)
    began = time.monotonic()
    assert device_patience.outlast_a_step(first.states, second.states, [polling])
    assert time.monotonic() - began >= 2.0
    assert waits_for_device((first.states[polling], seen(polling).states[polling]))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("polling", [300_000], indirect=True)
def test_one_that_sleeps_between_its_waits_ends_the_patience(polling: int) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:  # until two looks fall into one wait
        first, second = seen(polling), seen(polling)
        pair = first.states[polling], second.states[polling]
        if waits_for_device(pair):
            break
    began = time.monotonic()
    assert device_patience.outlast_a_step(first.states, second.states, [polling])
    assert time.monotonic() - began < device_patience.STEP_SECONDS
    assert not waits_for_device((first.states[polling], seen(polling).states[polling]))


def test_a_process_that_sleeps_is_not_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"], stdout=-1) as it:
        try:
            assert it.stdout is not None
            it.stdout.readline()
            time.sleep(0.2)
            look = seen(it.pid)
            assert not device_patience.outlast_a_step(look.states, seen(it.pid).states, [it.pid])
        finally:
            it.kill()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("polling", [10**9], indirect=True)
def test_the_time_awake_of_one_that_polls_is_all_its_time(polling: int) -> None:
    before, began = procfs.awake(polling), time.monotonic()
    if before is None:
        pytest.skip("this kernel does not count it")
    time.sleep(1.0)
    now, wall = procfs.awake(polling), time.monotonic() - began
    assert now is not None
    assert abs(now - before - wall) < 0.5 * wall


def test_the_time_awake_of_one_that_sleeps_stands_still() -> None:
    with subprocess.Popen(["sleep", "60"]) as it:
        try:
            time.sleep(0.3)
            before = procfs.awake(it.pid)
            time.sleep(0.5)
            now = procfs.awake(it.pid)
        finally:
            it.kill()
    if before is None or now is None:
        pytest.skip("this kernel does not count it")
    assert now - before < 0.05
