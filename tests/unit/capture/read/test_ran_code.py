"""Reading from outside which lines of a process have run."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from hangdoc.capture.read import ran_code as reader
from hangdoc.capture.read.python_memory import Memory
from hangdoc.model.ran import RanCode


def ran(pid: int, files: list[str], seconds: float = 0.5, *, early: bool = False) -> tuple[RanCode, ...]:
    return reader.ran_code(pid, files, seconds, early=early)[0]


_PROGRAM = """
import functools, sys, time
import helping

def wrapped(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)
    return wrapper

class Loader:
    def __init__(self, limit):
        self.limit = limit
        if limit > 5:
            self.large = limit.bit_length()

    @property
    def doubled(self):
        return self.limit + self.limit

    @staticmethod
    def chosen(value):
        if value is None:
            return len("a")
        return len("bc")

    @classmethod
    def made(cls, limit):
        return cls(limit)

    @functools.cached_property
    def kept(self):
        return self.limit * 2

    def unused(self):
        print([each for each in (1, 2)])

@wrapped
def work(step):
    if step % 2 and step > 100:
        print("never", step)
    for part in range(3):
        if part == step:
            print("once", part)
            continue
    return Loader(1).doubled + Loader.chosen(step) + Loader.made(step % 4).kept + helping.asked(step)

@functools.lru_cache
def remembered(step):
    return abs(step)

bound = functools.partial(lambda value: abs(value), 3)
def main():
    for step in range(20):
        work(step), remembered(step)
    print("ready", flush=True)
    for line in sys.stdin:
        print(work(int(line)), flush=True)

main()
"""
_HELPING = """
def asked(step):
    if step < 0:
        return helped(step)
    return abs(step)

def helped(step):
    return -abs(step)
"""


def _interpreters() -> Iterator[ParameterSet]:
    """One of each minor version that this machine has, this one first."""
    yield pytest.param(sys.executable, id="own")
    for minor in (11, 12, 13, 14):
        places = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3.{minor}"))
        found = str(places[0]) if places else shutil.which(f"python3.{minor}")
        missing = pytest.mark.skipif(found is None, reason="there is none")
        yield pytest.param(found or "", id=f"3.{minor}", marks=missing)


@contextmanager
def _job(folder: Path, interpreter: str = sys.executable, program: str = _PROGRAM) -> Iterator[subprocess.Popen[str]]:
    (folder / "program.py").write_text(program)
    (folder / "helping.py").write_text(_HELPING)
    process = subprocess.Popen(
        [interpreter, "-B", str(folder / "program.py")],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        while process.stdout.readline() != "ready\n":
            assert process.poll() is None
        _wait_until_it_sleeps(process.pid)
        yield process
    finally:
        process.kill()
        process.communicate(timeout=30)


def _wait_until_it_sleeps(pid: int) -> None:
    """It has printed, and goes on to its next line by itself."""
    for _ in range(200):
        before = _switches(pid)
        time.sleep(0.1)
        if before == _switches(pid) and "State:\tS" in Path(f"/proc/{pid}/status").read_text():
            return


def _switches(pid: int) -> list[str]:
    return [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "ctxt_switches" in line]


def _line(text: str, program: str = _PROGRAM) -> int:
    return program[: program.index(text)].count("\n") + 1


def _by_name(codes: tuple[RanCode, ...]) -> dict[str, RanCode]:
    return {code.function: code for code in codes}


@pytest.mark.parametrize("interpreter", list(_interpreters()))
def test_the_lines_that_have_run_are_told(tmp_path: Path, interpreter: str) -> None:
    with _job(tmp_path, interpreter) as process:
        codes = ran(process.pid, [str(tmp_path / "program.py")], 20)
    if not codes and sys.version_info < (3, 11) and interpreter == sys.executable:
        pytest.skip("an interpreter without such counters")
    assert {code.file for code in codes} == {str(tmp_path / "program.py"), str(tmp_path / "helping.py")}
    found = _by_name(codes)
    assert {"<module>", "wrapper", "Loader", "doubled", "chosen", "made", "kept", "remembered", "<lambda>"} <= {*found}

    work = found["work"]
    assert (work.called, work.idle) == (True, (_line("""print("never"""),))
    assert {_line("step % 2"), _line("in range(3)"), _line("part == step"), _line('print("once"')} <= {*work.ran}
    assert {_line("return Loader(1)")} <= {*work.ran}
    assert found["__init__"].ran == (_line("self.limit = limit"), _line("limit > 5"))
    assert found["__init__"].idle == (_line("self.large"),)
    assert _line('return len("bc")') in found["chosen"].ran
    assert found["chosen"].idle == (_line('return len("a")'),)
    for name in ("unused", "helped", "<lambda>"):
        assert (found[name].called, found[name].ran) == (False, ())
    assert found["unused"].idle == (_line("print([each"),)
    assert found["asked"].idle == (_line("return helped", _HELPING),)
    assert found["doubled"].ran == (_line("self.limit + self"),)
    assert found["kept"].ran == (_line("self.limit * 2"),)


@pytest.mark.parametrize("interpreter", list(_interpreters()))
def test_the_last_outcomes_of_tests_are_told_where_the_interpreter_keeps_them(tmp_path: Path, interpreter: str) -> None:
    with _job(tmp_path, interpreter) as process:
        found = _by_name(ran(process.pid, [str(tmp_path / "program.py")], 20))
    if not found or not any(code.tests for code in found.values()):
        assert "3.13" not in interpreter
        pytest.skip("an interpreter without histories")
    (outcome,) = found["chosen"].tests
    text = _PROGRAM.splitlines()[outcome.line - 1]
    assert text[outcome.column : outcome.end_column] == "value is None"
    assert outcome.line == outcome.end_line and set(outcome.outcomes) == {"V"} and len(outcome.outcomes) > 8
    (odd,) = (test for test in found["work"].tests if (test.column, test.end_column) == (7, 15))
    assert odd.outcomes[-1] == "T"  # of 19 % 2


def test_reading_neither_stops_nor_changes_the_process(tmp_path: Path) -> None:
    with _job(tmp_path) as process:
        before = ran(process.pid, [str(tmp_path / "program.py")], 20)
        switches = _switches(process.pid)
        again = ran(process.pid, [str(tmp_path / "program.py")], 20)
        assert before == again
        assert "TracerPid:\t0" in Path(f"/proc/{process.pid}/status").read_text()
        assert switches == _switches(process.pid)  # it has slept all the time
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("-3\n")
        process.stdin.flush()
        assert process.stdout.readline().strip().lstrip("-").isdecimal()
        if before:
            later = _by_name(ran(process.pid, [str(tmp_path / "program.py")], 20))
            assert later["helped"].called
            assert _line("return helped", _HELPING) in later["asked"].ran


def test_a_process_that_is_no_python_or_gone_has_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert ran(process.pid, []) == ()
        assert ran(process.pid, [os.__file__]) == ()
        process.kill()
    assert ran(process.pid, [os.__file__]) == ()


def test_torn_memory_ends_one_object_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(7)
    page = Memory._page

    def torn(self: Memory, number: int) -> bytes:
        data = bytearray(page(self, number))
        for _ in range(chance.randrange(3)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        return bytes(data)

    with _job(tmp_path) as process:
        monkeypatch.setattr(Memory, "_page", torn)
        for _ in range(30):
            began = time.monotonic()
            for code in ran(process.pid, [str(tmp_path / "program.py")], 0.5):
                assert len(code.function) <= 300 and code.file
            assert time.monotonic() - began < 5


def test_the_time_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_COUNTING", 0.0)
    with _job(tmp_path) as process:
        assert ran(process.pid, [str(tmp_path / "program.py")], -1.0) == ()


def test_the_number_of_functions_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_MOST_CODES", 3)
    with _job(tmp_path) as process:
        assert len(ran(process.pid, [str(tmp_path / "program.py")], 20)) <= 3


@pytest.mark.parametrize("interpreter", list(_interpreters()))
def test_counters_that_a_debugger_stops_or_makes_anew_tell_nothing(tmp_path: Path, interpreter: str) -> None:
    program = "import sys\nsys.settrace(lambda *_: None)\n" + _PROGRAM
    with _job(tmp_path, interpreter, program) as process:
        codes = ran(process.pid, [str(tmp_path / "program.py")], 20)
    assert [code for code in codes if code.idle and code.called] == []
