"""What Python's faulthandler writes of a process that native code ends, read as hostile text."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from hangdoc.capture.read.fault_stacks import fault_stack, read_fault
from hangdoc.capture.read.probe_client import ProbeBye, ProbeCounters, ProbeDetails
from hangdoc.model.journal import Journal
from hangdoc.model.process import ProcessExit, Stack

# As CPython 3.11 wrote them: gloo's thread, which runs no Python, aborted.
NATIVE_THREAD = """\
Fatal Python error: Aborted

Thread 0x00007f76b1d1f6c0 (most recent call first):
  File "/job/hangdoc/probe/hangdoc_probe_serve.py", line 138 in _serve

Thread 0x00007f76b29bbb80 (most recent call first):
  File "/opt/site-packages/torch/distributed/distributed_c10d.py", line 3252 in all_reduce
  File "/job/train.py", line 44 in step
  File "/job/train.py", line 60 in <module>

Extension modules: numpy._core._multiarray_umath, torch._C (total: 2)
"""
CURRENT_THREAD = NATIVE_THREAD.replace("Thread 0x00007f76b1d1f6c0", "Current thread 0x00007f76b1d1f6c0").replace(
    "/job/hangdoc/probe/hangdoc_probe_serve.py", "/job/loader.py"
)


def places(stack: Stack) -> list[tuple[str, int, str]]:
    return [(frame.file, frame.line, frame.function) for frame in stack]


def read(text: str, number: int = signal.SIGABRT) -> list[tuple[str, int, str]]:
    return places(fault_stack(text.splitlines(), number))


def test_of_a_native_thread_it_is_the_main_threads_stack() -> None:
    assert read(NATIVE_THREAD)[1:] == [("/job/train.py", 44, "step"), ("/job/train.py", 60, "<module>")]


def test_a_thread_that_runs_python_has_its_own() -> None:
    assert read(CURRENT_THREAD) == [("/job/loader.py", 138, "_serve")]
    without_frames = CURRENT_THREAD.replace('  File "/job/loader.py", line 138 in _serve', "  <no Python frame>")
    assert read(without_frames) == read(NATIVE_THREAD), "an autograd thread, say"


C_STACK = """
Current thread's C stack trace (most recent call first):
  Binary file "/lib/libc.so.6", at gsignal+0x12 [0x7f76b1d1f6c0]

Extension"""


def test_newer_pythons_name_the_threads_and_show_the_c_stack() -> None:
    named = NATIVE_THREAD.replace("6b29bbb80 (", "6b29bbb80 [python] (").replace("\nExtension", C_STACK)
    assert named.count("most recent") == 3
    assert read(named) == read(NATIVE_THREAD)


def test_only_the_last_report_counts_and_only_that_of_the_signal() -> None:
    forked = NATIVE_THREAD.replace("Aborted", "Segmentation fault").replace("line 44", "line 7")
    assert read(forked + NATIVE_THREAD) == read(NATIVE_THREAD)
    assert read(NATIVE_THREAD + forked) == []
    assert read(forked, signal.SIGSEGV)[1] == ("/job/train.py", 7, "step")
    assert read(NATIVE_THREAD.replace("Aborted", "Floating-point exception"), signal.SIGFPE) != []
    for number in (signal.SIGKILL, signal.SIGTERM, 0, 4711):
        assert read(NATIVE_THREAD, number) == []


def test_of_too_many_threads_the_main_one_is_not_among_those_written() -> None:
    cut = NATIVE_THREAD[: NATIVE_THREAD.index("Thread 0x00007f76b29bbb80")] + "...\n"
    assert read(cut) == []
    assert read(cut.replace("Thread 0x00007f76b1d1f6c0", "Current thread 0x00007f76b1d1f6c0")) != []


def test_names_are_unescaped_and_made_harmless() -> None:
    line = '  File "/job/caf\\xe9/\\u6f22\\U0001f600.py", line 3 in d\\xe9marrer\\x1b[31m'
    (found,) = read(NATIVE_THREAD.partition("  File")[0] + line)
    assert found == ("/job/café/漢😀.py", 3, "démarrer\\x1b[31m")
    assert read(NATIVE_THREAD.partition("  File")[0] + '  File "\\Uffffffff", line 3 in f') != []


@pytest.mark.parametrize("text", ["", "Fatal Python error: ", "Fatal Python error: Aborted", "\0" * 99, "  File", "…"])
def test_what_is_no_report_tells_nothing(text: str) -> None:
    assert read(text) == []


def test_only_a_plain_file_of_our_own_is_read(tmp_path: Path) -> None:
    path = tmp_path / "7.fault"
    assert read_fault(path, signal.SIGABRT) == ()
    path.write_text(NATIVE_THREAD)
    assert places(read_fault(path, signal.SIGABRT)) == read(NATIVE_THREAD)
    link = tmp_path / "8.fault"
    link.symlink_to(path)
    assert read_fault(link, signal.SIGABRT) == ()
    fifo = tmp_path / "9.fault"
    os.mkfifo(fifo)
    assert read_fault(fifo, signal.SIGABRT) == ()
    with path.open("r+b") as file:
        file.truncate(1 << 30)
    assert read_fault(path, signal.SIGABRT) == ()
    if os.geteuid() == 0:
        path.write_text(NATIVE_THREAD)
        os.chown(path, 65534, 65534)
        assert read_fault(path, signal.SIGABRT) == (), "another user's"


def test_what_a_rank_said_as_it_lived_leaves_the_stack_of_its_end() -> None:
    counters = ProbeCounters(7, 0, 2, 0, 0, {}, 0, True, 0, 0, False)
    stack = fault_stack(NATIVE_THREAD.splitlines(), signal.SIGABRT)
    ended = ProcessExit(90.0, signal=int(signal.SIGABRT), stack=stack)
    said = ProbeBye(ProbeDetails(counters, Journal("probe")), 89.0)
    assert said.of(ended) == ended
    assert replace(said, exception="KeyError").of(ended).stack == ()
