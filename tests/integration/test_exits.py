"""How processes end that are nobody's child here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from conftest import MARK

from hangdoc.capture.read import exits
from hangdoc.capture.read.exits import ExitWatch
from hangdoc.model.process import ProcessExit

KERNEL = tuple(int(word) for word in os.uname().release.split("-")[0].split(".")[:2])
needs_exit_info = pytest.mark.skipif(KERNEL < (6, 15), reason="PIDFD_GET_INFO tells exits since Linux 6.15")

# A parent that reaps at once, or never does, and prints the child's pid.
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE)
print(child.pid, flush=True)
if sys.argv[2] == "reap":
    sys.stdin.readline()
    child.stdin.close()
    child.wait()
    print("reaped", flush=True)
else:
    sys.stdin.readline()
    child.stdin.close()
time.sleep(3000)
"""


@pytest.fixture
def watch_exits() -> Iterator[ExitWatch]:
    watching = ExitWatch()
    yield watching
    watching.close()


def end_of(watching: ExitWatch, mark: str, end: str, reaping: str) -> ProcessExit:
    """The end of a grandchild that runs ``end`` once it is told to."""
    code = f"import sys, os, signal; sys.stdin.read(); {end}"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, code, reaping],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, MARK: mark},
    )
    try:
        assert parent.stdin is not None
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        watching.add(pid)
        watching.add(pid)
        assert pid in watching
        assert watching.poll() == {}
        parent.stdin.write(b"go\n")
        parent.stdin.flush()
        if reaping == "reap":
            assert parent.stdout.readline() == b"reaped\n"
        deadline = time.monotonic() + 20
        while not (ended := watching.poll()) and time.monotonic() < deadline:
            watching.wait(0.2)
        assert ended.keys() == {pid}
        assert watching.poll() == {}
        assert pid not in watching
        return ended[pid]
    finally:
        parent.kill()
        parent.communicate(timeout=10)


@needs_exit_info
@pytest.mark.parametrize("reaping", ["reap", "leave"])
@pytest.mark.parametrize(
    ("end", "status", "signalled"),
    [
        ("sys.exit(7)", 7, None),
        ("sys.exit(0)", 0, None),
        ("os.kill(os.getpid(), 9)", None, signal.SIGKILL),
        ("os.abort()", None, signal.SIGABRT),
    ],
)
def test_status_and_signal(
    watch_exits: ExitWatch, mark: str, end: str, status: int | None, signalled: int | None, reaping: str
) -> None:
    ended = end_of(watch_exits, mark, end, reaping)
    assert (ended.status, ended.signal) == (status, signalled)
    assert abs(ended.at - time.time()) < 30


def test_an_old_kernel_has_the_zombie_only(watch_exits: ExitWatch, mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exits, "exit_status", lambda pidfd: None)
    assert end_of(watch_exits, mark, "sys.exit(7)", "leave").status == 7
    unknown = end_of(watch_exits, mark, "sys.exit(7)", "reap")
    assert (unknown.status, unknown.signal) == (None, None)


def test_without_descriptors(watch_exits: ExitWatch, mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    assert end_of(watch_exits, mark, "sys.exit(7)", "leave").status == 7


def test_somebody_who_was_gone_before_is_not_watched(watch_exits: ExitWatch) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait(20)
    watch_exits.add(process.pid)
    assert process.pid not in watch_exits
    assert watch_exits.poll() == {}
