"""Does one call run different functions on the two sides, and which line chose what it runs?"""

from __future__ import annotations

import textwrap

import pytest

from hangdoc.diagnosis.condition.called_otherwise import called_otherwise
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

FILE = "/home/me/train.py"
TEXT = textwrap.dedent("""
    class Plain:
        def reduce(self):
            all_reduce()
            barrier()

    class Scaled:
        def reduce(self):
            all_gather()

    class Session:
        def __init__(self, name):
            self.reducer = REGISTRY[name]()

        def train(self, kind, callbacks):
            for step in range(3):
                self.reducer.reduce()
            run = STEPS[kind]
            run(self)
            for callback in callbacks:
                callback.reduce()
""").lstrip("\n")
SOURCES = Sources((SourceText(FILE, "<module>", 1, TEXT),))


@pytest.mark.parametrize(
    ("line", "functions", "name", "chosen"),
    [
        pytest.param(16, ("reduce", "reduce"), "self.reducer", 12, id="the object of a method of both"),
        pytest.param(18, ("plain_step", "scaled_step"), "run", 17, id="a variable that holds a function"),
        pytest.param(20, ("reduce", "reduce"), None, None, id="not the items of a loop, at which the sides may differ"),
    ],
)
def test_what_a_call_runs_is_chosen_elsewhere(
    line: int, functions: tuple[str, str], name: str | None, chosen: int | None
) -> None:
    sides = [(Frame(FILE, at, f), Frame(FILE, line, "train")) for at, f in zip((3, 8), functions, strict=True)]

    found = called_otherwise(SOURCES, (sides[0], sides[1]))

    assert (found and found.name, found and found.chosen.line) == (name, chosen)


def test_two_lines_of_one_function_are_no_other_call() -> None:
    caller = Frame(FILE, 16, "train")

    assert called_otherwise(SOURCES, ((Frame(FILE, 3, "reduce"), caller), (Frame(FILE, 4, "reduce"), caller))) is None
