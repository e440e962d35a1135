"""What lies in `program/` and nowhere else, what it costs, and that real code can be read."""

from __future__ import annotations

import ast
import inspect
import random
import re
import sysconfig
import time
from pathlib import Path

import pytest
from graphs import files_in, read_all

import hangdoc.diagnosis
from hangdoc.diagnosis import program
from hangdoc.diagnosis.program import Program
from hangdoc.diagnosis.program.places import Places
from hangdoc.model.snapshot import Module

DIAGNOSIS = Path(hangdoc.diagnosis.__file__).parent
SYNTACTIC = {"ast", "symtable", "dis", "tokenize"}
OLDER = {"decisions.py", "tested.py"}
"""Of `execution/`, from before there was a `program/`."""
FILE = "/job/train.py"


def imported(path: Path) -> set[str]:
    """The first names of the modules that a file imports."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {
        name.partition(".")[0] for name in (*plain, *(n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)))
    }


def test_syntax_is_read_by_the_program_alone() -> None:
    modules = [path for room in ("execution", "reason", "hypotheses") for path in (DIAGNOSIS / room).glob("*.py")]
    assert len(modules) > 15
    assert {path.name for path in modules if imported(path) & SYNTACTIC} == OLDER


@pytest.mark.parametrize("exported", [*filter(inspect.isclass, map(vars(program).get, program.__all__)), Places])
def test_nothing_that_is_public_names_a_node_of_the_syntax(exported: type) -> None:
    said = {each: str(kind) for each, kind in getattr(exported, "__annotations__", {}).items()}
    for each, member in vars(exported).items():
        called = member.fget if isinstance(member, property) else getattr(member, "func", member)
        called = getattr(called, "__func__", called)
        if inspect.isfunction(called) and (not each.startswith("_") or each == "__init__"):
            said[each] = str(inspect.signature(called))
    public = {each: text for each, text in said.items() if not each.startswith("_") or each == "__init__"}
    assert not {each: text for each, text in public.items() if re.search(r"\b(ast|AST)\b", text)}


def test_a_sample_of_the_standard_library_can_be_read() -> None:
    every = [each for each in files_in(Path(sysconfig.get_path("stdlib"))) if "test" not in each.parts]
    number, wrong = read_all(random.Random(1).sample(every, 25))
    assert number > 100
    assert not wrong


def seconds_for(tests: int) -> float:
    """CPU time of the slice from behind so many tests in one function."""
    code = "def f(x):\n" + "    if x:\n        f()\n" * tests
    job = Program((), [Module(FILE, "sha256:0", code)])
    begun = time.process_time()
    assert list(job.slice_back(FILE, 2 * tests + 1))
    return time.process_time() - begun


def test_the_cost_grows_with_the_length_and_not_with_its_square() -> None:
    seconds_for(100)  # what is imported and compiled the first time
    short, long = seconds_for(1_000), seconds_for(8_000)
    assert long < 24 * max(short, 0.02)
