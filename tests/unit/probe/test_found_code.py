"""How the recorder of branches comes to know the program's code: its tables, and what modules hold."""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import hangdoc

PROBE = Path(hangdoc.__file__).parent / "probe"
FILE = "/job/program.py"
MODULE = """
import functools, json

def plain(): pass

def hidden(function):
    return lambda: function()

@functools.wraps(plain)
@hidden
def wrapped(): pass

@functools.lru_cache
def cached(): pass

part = functools.partial(functools.partial(lambda _: None), 1)

class Rows(json.JSONDecoder):
    class Row:
        @property
        def size(self): pass

    @functools.cached_property
    def ready(self): pass

    @staticmethod
    def of(): pass

class Task:
    def __init__(self, function):
        self.run = function

@Task
def kept(): pass

rows = Rows()
"""


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    monkeypatch.syspath_prepend(str(PROBE))
    import hangdoc_probe_found

    yield hangdoc_probe_found
    for name in ("hangdoc_probe_found", "hangdoc_probe_program"):
        sys.modules.pop(name, None)


def test_the_functions_that_are_asked_exist(found: types.ModuleType) -> None:
    """Where the packages are here; Python's own and torch always are."""
    seen = set()
    for name, paths in {**found.RUNNING, **found.MAKING}.items():
        top, _, rest = name.partition(".")
        spec = importlib.util.find_spec(top)
        if spec is None:
            continue
        file = Path(spec.origin or "") if not rest else Path(spec.origin or "").parent / f"{rest.replace('.', '/')}.py"
        if top in sys.stdlib_module_names and not file.exists():  # frozen
            file = Path(functools.__file__).parent / f"{name.replace('.', '/')}.py"
        text = file.read_text(encoding="utf-8")
        for path in paths:
            *classes, function = path.split(".")
            assert all(re.search(rf"^class {each}\b", text, re.MULTILINE) for each in classes), name
            assert re.search(rf"^ *(async )?def {function}\(", text, re.MULTILINE), name
        seen.add(top)
    assert {"importlib", "runpy", "code", "torch"} <= seen


def test_a_module_s_functions_are_found_behind_what_wraps_them(found: types.ModuleType) -> None:
    module = types.ModuleType("program")
    exec(compile(MODULE, FILE, "exec"), module.__dict__)
    codes = [each for each in found.code_in(module.__dict__, lambda file: file == FILE) if each.co_filename == FILE]
    assert {each.co_name for each in codes} >= {"plain", "wrapped", "cached", "size", "ready", "of", "kept", "<lambda>"}
    assert {name for code in codes for name in [each.co_name for each in found.nested(code)]} == {"<lambda>"}


def test_nothing_of_the_program_s_is_executed_for_it(found: types.ModuleType) -> None:
    class Hostile(type):
        def __getattribute__(cls, name: str) -> object:
            raise RuntimeError(name)

    class Value(metaclass=Hostile):
        __slots__ = ("held",)

        def __getattribute__(self, name: str) -> object:
            raise RuntimeError(name)

        def __eq__(self, other: object) -> bool:
            raise RuntimeError

        def __hash__(self) -> int:
            raise RuntimeError

    value = object.__new__(Value)
    names = {"value": value, "kind": Value, "many": list(range(10**6)), "none": None}
    assert {code.co_name for code in found.code_in(names, lambda _: True)} <= {"__getattribute__", "__eq__", "__hash__"}
