"""Tools run within their deadline and leave nothing running, whatever they do."""

import gc
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from hangdoc.capture.safe.tool import run_tool

LONG = 60.0


def run(script: str, seconds: float = LONG, most_output: int = 1 << 20):
    return run_tool(["/bin/sh", "-c", script], until=time.monotonic() + seconds, most_output=most_output)


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def test_a_tool_gives_its_status_and_both_outputs():
    done = run("echo out; echo err >&2; exit 3")
    assert (done.status, done.output, done.errors, done.cut) == (3, b"out\n", b"err\n", False)


def test_a_tool_that_a_signal_ended_has_a_negative_status():
    assert run("kill -SEGV $$").status == -signal.SIGSEGV


def test_the_output_is_bounded_and_the_tool_still_runs_to_its_end(tmp_path):
    done = run(f"head -c 3000000 /dev/zero; echo whole > {tmp_path}/end", most_output=1000)
    assert (len(done.output), done.cut, done.status) == (1000, True, 0)
    assert (tmp_path / "end").exists(), "a tool that holds a process must not be killed for what it writes"


def test_an_output_of_just_the_limit_is_whole():
    done = run("printf 12345", most_output=5)
    assert (done.output, done.cut) == (b"12345", False)


def test_the_end_of_a_long_complaint_is_kept():
    done = run("head -c 3000000 /dev/zero >&2; echo the reason >&2; exit 1")
    assert done.errors.endswith(b"the reason\n")
    assert len(done.errors) <= 1 << 20


@pytest.mark.parametrize("doing", ["exec sleep 60", "exec >&- 2>&-; exec sleep 60", "exec yes"])
def test_a_tool_is_killed_and_reaped_at_its_deadline(tmp_path, doing):
    with pytest.raises(TimeoutError):
        run(f"echo $$ > {tmp_path}/pid; {doing}", seconds=1.0)
    assert state(int((tmp_path / "pid").read_text())) == "", "it runs on, or is a zombie"


def test_what_a_tool_has_started_is_killed_with_it(tmp_path):
    with pytest.raises(TimeoutError):
        run(f"sleep 60 & echo $! > {tmp_path}/pid; wait", seconds=1.0)
    until = time.monotonic() + LONG
    while state(int((tmp_path / "pid").read_text())) not in ("", "Z") and time.monotonic() < until:
        time.sleep(0.01)
    assert state(int((tmp_path / "pid").read_text())) in ("", "Z")


def test_a_tool_that_ends_leaves_no_zombie(tmp_path):
    run(f"echo $$ > {tmp_path}/pid")
    assert state(int((tmp_path / "pid").read_text())) == ""


def test_no_descriptor_stays_open(tmp_path):
    run("true")
    gc.collect()  # what earlier tests have left open does not close in between
    before = set(os.listdir("/proc/self/fd"))
    run("echo a")
    with pytest.raises(TimeoutError):
        run("exec sleep 60", seconds=0.2)
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_child_that_keeps_the_pipes_open_does_not_delay_the_answer():
    began = time.monotonic()
    done = run("sleep 60 & echo $!")
    try:
        assert time.monotonic() - began < LONG / 2
    finally:
        os.kill(int(done.output), signal.SIGKILL)


def test_a_tool_has_a_session_of_its_own_and_no_input():
    code = "import os, sys; print(os.getsid(0) == os.getpid(), repr(sys.stdin.read()))"
    done = run_tool([sys.executable, "-S", "-c", code], until=time.monotonic() + LONG, most_output=100)
    assert done.output == b"True ''\n"


def test_a_tool_that_cannot_be_started_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        run_tool([str(tmp_path / "none")], until=time.monotonic() + LONG, most_output=100)
