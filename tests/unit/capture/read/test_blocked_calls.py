from __future__ import annotations

import fcntl
import os
import platform

import pytest

from hangdoc.capture.read import blocked_calls
from hangdoc.capture.read.blocked_calls import Call, lock_holders, parse_call
from hangdoc.model.process import Frame, Local, Thread

READ = {"x86_64": 0, "aarch64": 63}.get(platform.machine(), -1)

LOCKS = """\
1: POSIX  ADVISORY  READ  900 fe:01:77 128 128
2: FLOCK  ADVISORY  WRITE 4711 fe:01:1234 0 EOF
2: -> FLOCK  ADVISORY  WRITE 4712 fe:01:1234 0 EOF
2: -> FLOCK  ADVISORY  WRITE 4713 fe:01:1234 0 EOF
3: OFDLCK ADVISORY  WRITE -1 fe:01:99 0 EOF
3: -> POSIX  ADVISORY  WRITE 4714 fe:01:99 0 EOF
"""


@pytest.mark.skipif(READ < 0, reason="no table for this machine's system calls")
def test_parse_call() -> None:
    assert parse_call(f"{READ} 0x3 0x10 0x0 0x0 0x0 0xff") == Call("read", (3, 16, 0, 0, 0, 255))


def test_an_unknown_call_has_no_name() -> None:
    call = parse_call("99999 0x3 0x10 0x0 0x0 0x0 0xff")
    assert call is not None
    assert call.name == ""


@pytest.mark.parametrize("words", [None, "", "running", "-1", "-1 0x1 0x2", "0 0x1", "x 1 2 3 4 5 6", "0 a b c d e g"])
def test_no_call(words: str | None) -> None:
    assert parse_call(words) is None


@pytest.mark.parametrize(("pid", "holders"), [(4712, [4711]), (4713, [4711]), (4711, []), (4714, []), (1, [])])
def test_lock_holders(pid: int, holders: list[int]) -> None:
    assert lock_holders(LOCKS, pid) == holders


def test_lock_holders_of_rubbish() -> None:
    assert lock_holders("a b c\n2: ->\n-> -> -> -> -> 5\n", 5) == []


def test_no_call_with_wild_arguments_raises() -> None:
    for number in range(-1, 460):
        for word in ("0x0", "0xffffffffffffffff", "0x1"):
            thread = Thread(1, "x", "S", syscall=" ".join([str(number), *[word] * 6]))
            assert blocked_calls.blocking_files(os.getpid(), thread) is not None
            seconds = blocked_calls.wakes_in(os.getpid(), thread)
            assert seconds is None or seconds >= 0


def test_files_on_which_a_process_holds_a_lock(tmp_path):
    path = tmp_path / "cache.lock"
    with path.open("w") as file:
        before = set(blocked_calls.locked_files([os.getpid()]).get(os.getpid(), ()))  # what other tests left open
        fcntl.flock(file, fcntl.LOCK_EX)
        (after,) = blocked_calls.locked_files([os.getpid()]).values()
        assert {*after} - before == {str(path)}
        fcntl.flock(file, fcntl.LOCK_UN)
        assert set(blocked_calls.locked_files([os.getpid()]).get(os.getpid(), ())) == before


def test_lock_files_that_locals_name(tmp_path):
    path = tmp_path / "cache.lock"
    os.mkfifo(tmp_path / "queue.lock")
    names = [Local(name, f'"{tmp_path}/{name}.lock"') for name in ("cache", "queue", "gone")]
    frames = (Frame("/job/train.py", 3, "f", (*names, Local("n", "7"))),)
    assert blocked_calls.named_locks(os.getpid(), frames) == ()
    path.touch()
    os.utime(path, (5, 5))
    (found,) = blocked_calls.named_locks(os.getpid(), frames)
    assert (found.target, found.peers, found.changed) == (str(path), (), 5.0)
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (found,) = blocked_calls.named_locks(os.getpid(), frames)
        assert found.peers == (os.getpid(),)
