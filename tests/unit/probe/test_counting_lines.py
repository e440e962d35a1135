"""The probe has CPython 3.11 count from the first call on; any other interpreter it leaves as it is."""

import ctypes
import os
import sys
import types
from pathlib import Path

import pytest

import hangdoc

PROBE = Path(hangdoc.__file__).parent / "probe"
# hangdoc's own modules and tests are as many as the probe would look at in all
LIBRARIES = [os.path.dirname(os.__file__), sys.prefix, str(Path(__file__).parents[3])]
is_3_11 = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="CPython 3.11 alone counts late")

PROGRAM = """
def plain(rows):
    if not rows:
        return len(rows)
    return sum(row + 1 for row in rows)

class Store:
    @property
    def size(self):
        return len(self.rows)

    @staticmethod
    def of(rows):
        def inner():
            return rows
        return inner
"""


@pytest.fixture
def lines(monkeypatch):
    monkeypatch.syspath_prepend(str(PROBE))
    import hangdoc_probe_lines

    yield hangdoc_probe_lines
    sys.modules.pop("hangdoc_probe_lines", None)


@pytest.fixture
def program(monkeypatch):
    """A module of the user's, not called yet."""
    module = types.ModuleType("users_program")
    module.__file__ = "/job/users_program.py"
    exec(compile(PROGRAM, module.__file__, "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def codes(program):
    found = [program.plain.__code__, program.Store.size.fget.__code__, program.Store.of.__code__]
    return [*found, *(each for code in found for each in code.co_consts if isinstance(each, types.CodeType))]


def counts(program):
    return [ctypes.c_short.from_address(id(code) + 52).value for code in codes(program)]


@is_3_11
def test_every_function_counts_from_its_first_call(lines, program):
    assert set(counts(program)) == {-8}
    lines.Lines(LIBRARIES).more(sys._getframe())
    assert len(counts(program)) == 5
    assert set(counts(program)) == {-1}
    assert program.plain([]) == 0
    assert program.plain([1, 2]) == 5
    assert counts(program)[0] == 0
    assert program.plain.__code__._co_code_adaptive != program.plain.__code__.co_code


@is_3_11
def test_what_counts_already_goes_on(lines, program):
    for _ in range(20):
        program.plain([1])
    lines.Lines(LIBRARIES).more(sys._getframe())
    assert counts(program)[0] == 0


def test_a_librarys_code_stays_as_it_is(lines, program):
    before = [code._co_code_adaptive if hasattr(code, "_co_code_adaptive") else code.co_code for code in codes(program)]
    counted = counts(program)
    lines.Lines([*LIBRARIES, "/job"]).more(None)
    assert counts(program) == counted
    assert before == [c._co_code_adaptive if hasattr(c, "_co_code_adaptive") else c.co_code for c in codes(program)]


@pytest.mark.parametrize(
    ("name", "value"),
    [("VERSION", (3, 10)), ("VERSION", (3, 12)), ("OFFSET", 54), ("OFFSET", 48), ("OFFSET", 1 << 20), ("FIRST", -9)],
)
def test_an_interpreter_that_is_built_otherwise_is_left_alone(lines, program, monkeypatch, name, value):
    monkeypatch.setattr(lines, name, value)
    counted = counts(program)
    lines.Lines(LIBRARIES).more(sys._getframe())
    assert counts(program) == counted


def test_an_error_of_ours_is_not_the_programs(lines, program, monkeypatch):
    found = lines.Lines(LIBRARIES)
    found.short = object()
    found.more(sys._getframe())
    assert found.short is None
