"""Native frames of real processes by pystack, and what becomes of a process whose pystack is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import MARK

from hangdoc.capture.find.target import RankTarget
from hangdoc.capture.host import capture_job
from hangdoc.capture.read import native_stacks, procfs
from hangdoc.capture.request import CaptureOptions, CaptureRequest
from hangdoc.model.process import Stack
from hangdoc.model.snapshot import Unavailable

pytestmark = [
    pytest.mark.skipif(native_stacks.find_pystack() is None, reason="pystack is not installed"),
]

PROGRAM = "import ctypes\ndef wait():\n    ctypes.CDLL(None).pause()\nprint(flush=True)\nwait()\n"


@pytest.fixture
def waiting(mark: str, tmp_path: Path) -> Iterator[int]:
    """A process whose Python frames say nothing: its own code is inside a C function."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    with subprocess.Popen([sys.executable, str(script)], env={**os.environ, MARK: mark}, stdout=subprocess.PIPE) as it:
        try:
            assert it.stdout is not None
            it.stdout.readline()
            until(lambda: (main := getattr(procfs.look(it.pid), "main", None)) is not None and main.state == "S")
            yield it.pid
        finally:
            it.kill()


def until(holds: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def free(pid: int) -> bool:
    state = procfs.look(pid)
    return state is not None and state.state == "S" and state.tracer_pid == 0 and not procfs.is_stopped(pid)


def functions(found: Stack | Unavailable) -> list[str]:
    assert not isinstance(found, Unavailable), found
    return [frame.function.partition("@")[0] for frame in found]


def test_a_capture_has_them_where_python_says_nothing(waiting: int) -> None:
    target = RankTarget(0, waiting, "environment", 1)
    for options, expected in ((CaptureOptions(gap=0.2, native=True), True), (CaptureOptions(gap=0.2), False)):
        snapshot = capture_job(CaptureRequest([target], options=options))
        process = snapshot.ranks[0].process
        assert process is not None
        assert process.last is not None
        assert process.last.main is not None
        assert any("pause" in function for function in functions(process.last.main.native_frames)) is expected
    assert free(waiting)


def test_a_stopped_process_is_left_alone(waiting: int) -> None:
    os.kill(waiting, signal.SIGSTOP)
    until(lambda: getattr(procfs.stat(waiting), "state", None) == "T")
    found = native_stacks.dump({waiting: waiting}, deadline=10)[waiting]
    assert isinstance(found, Unavailable)
    assert "is stopped" in found.why
    assert procfs.is_stopped(waiting)


def test_killed_at_any_moment_it_leaves_nothing_stopped(waiting: int) -> None:
    for hundredths in range(0, 60, 4):
        native_stacks.dump({waiting: waiting}, deadline=hundredths / 100)
        until(lambda: free(waiting))
    assert functions(native_stacks.dump({waiting: waiting}, deadline=20)[waiting])
