from __future__ import annotations

import os
from pathlib import Path

import pytest

from hangdoc.capture.read import procfs
from hangdoc.capture.safe.text import clean, read_bytes, read_text

NOBODY = 2**22 + 1  # above the highest pid Linux gives


def stat_line(comm: str, state: str = "S", ppid: int = 7, exit_code: int = 0) -> bytes:
    fields = [state, str(ppid), *["0"] * 9, "150", "50", *["0"] * 6, "4200", *["0"] * 29, str(exit_code)]
    return f"42 ({comm}) {' '.join(fields)}\n".encode()


def test_stat() -> None:
    entry = procfs.parse_stat(stat_line("python", "Z", exit_code=1792))
    tick = os.sysconf("SC_CLK_TCK")
    assert entry is not None
    assert (entry.pid, entry.comm, entry.state, entry.ppid) == (42, "python", "Z", 7)
    assert entry.cpu == pytest.approx(200 / tick)
    assert entry.started == pytest.approx(4200 / tick)
    assert entry.exit_code == 1792


@pytest.mark.parametrize("comm", ["a) S 1 (b", "two words", "x)", "(((", ""])
def test_stat_of_a_process_with_a_hostile_name(comm: str) -> None:
    entry = procfs.parse_stat(stat_line(comm))
    assert entry is not None
    assert entry.comm == comm
    assert entry.ppid == 7


def test_a_name_cannot_carry_control_characters() -> None:
    entry = procfs.parse_stat(stat_line("\x1b[2J\n"))
    assert entry is not None
    assert entry.comm == "\\x1b[2J\\n"


@pytest.mark.parametrize("data", [b"", b"42", b"42 (x) S", b"x (y) " + b"0 " * 60, b")(", b"\xff" * 100])
def test_rubbish_is_no_stat(data: bytes) -> None:
    assert procfs.parse_stat(data) is None


def test_own_process() -> None:
    pid = os.getpid()
    state = procfs.look(pid)
    assert state is not None
    assert state.main is not None
    assert state.main.tid == pid
    assert state.main.state == "R"
    assert state.tracer_pid == 0
    pulse = procfs.pulse(pid)
    assert pulse is not None
    assert pulse.state == "R"
    assert pulse.cpu > 0
    assert procfs.exists(pid)
    assert procfs.is_python(pid)
    assert procfs.argv(pid)[0].rpartition("/")[2].startswith("py")
    assert procfs.namespace_pid(pid, pid) == pid


def test_nobody() -> None:
    assert procfs.stat(NOBODY) is None
    assert procfs.look(NOBODY) is None
    assert procfs.pulse(NOBODY) is None
    assert procfs.argv(NOBODY) == ()
    assert procfs.environment(NOBODY) is None
    assert not procfs.exists(NOBODY)
    assert not procfs.is_python(NOBODY)
    assert procfs.namespace_pid(NOBODY, NOBODY) == NOBODY


def test_descendants_come_after_their_parents_and_survive_a_loop() -> None:
    def entry(pid: int, ppid: int, started: float) -> procfs.Stat:
        return procfs.Stat(pid, "x", "S", ppid, 0.0, started, 0)

    processes = {e.pid: e for e in [entry(5, 3, 9), entry(3, 1, 2), entry(4, 3, 8), entry(9, 8, 1), entry(1, 4, 0)]}
    assert procfs.descendants(3, processes) == [3, 4, 5, 1]
    assert procfs.descendants(77, processes) == []


def test_only_listed_variables_leave_the_environment() -> None:
    assert "RANK" in procfs.ENVIRONMENT_NAMES
    assert not procfs.ENVIRONMENT_NAMES & {"HOME", "PATH", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "WANDB_API_KEY"}


def test_a_system_call_keeps_its_number_and_arguments() -> None:
    words = "202 0x1 0x2 0x3 0x4 0x5 0x6 0x7ffd 0x7f11\n"
    assert procfs._syscall_words(words) == "202 0x1 0x2 0x3 0x4 0x5 0x6"
    assert procfs._syscall_words("running\n") == "running"
    assert procfs._syscall_words("-1 0x7ffd 0x7f11\n") == "-1"
    assert procfs._syscall_words("") is None
    assert procfs._syscall_words(None) is None


def test_clean() -> None:
    assert clean("plain – text") == "plain – text"
    assert clean("a\x1b[31mb\r\n\u202e") == "a\\x1b[31mb\\r\\n\\u202e"
    assert len(clean("x" * 100, 10)) == 10


def test_reading_is_bounded_and_forgiving(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"ab\xffcd")
    assert read_bytes(str(file), 2) == b"ab"
    assert read_text(str(file)) == "ab\\xffcd"
    assert read_bytes(str(tmp_path)) is None
    assert read_text(str(tmp_path / "none")) is None
