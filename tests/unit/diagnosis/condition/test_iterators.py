"""By what the program's own iterator ends that a loop goes over."""

from __future__ import annotations

import textwrap

import pytest

from hangdoc.diagnosis.condition.loops.iterators import iterator_answers
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.snapshot import SourceText

FILE = "/home/me/train.py"
CLASS = """
    class Budget:
        def __next__(self):
            if self.used >= self.budget:
                raise StopIteration
            return self.take()
    class Filtered:
        def __iter__(self):
            for row in self.rows:
                if row.bad:
                    continue
                yield row
    """


def told(loop: str, loader: str, program: str = CLASS) -> dict[str, list[tuple[int, str]]]:
    """Function → (line, source) of each test, of the loop at line 2 of fit(), where `loader` shows that value."""
    whole = f"def fit(loader):\n    {loop}\n        step()\n" + textwrap.dedent(program)
    sources = Sources((SourceText(FILE, "<module>", 1, whole),))
    found = iterator_answers(sources, lambda name: {0: loader, 1: loader} if name == "loader" else {}, FILE, 2)
    return {a.function: [(test.line, test.source) for test in a.tests] for a in found}


@pytest.mark.parametrize("loop", ["for batch in loader:", "for i, batch in enumerate(loader):"])
def test_a_class_that_stops_itself(loop: str) -> None:
    assert told(loop, "<Budget>") == {"Budget.__next__": [(7, "if self.used >= self.budget:")]}


def test_a_class_that_leaves_items_out() -> None:
    assert told("for batch in loader:", "<Filtered>") == {"Filtered.__iter__": [(13, "if row.bad:")]}


def test_a_generator_function_of_the_program() -> None:
    program = """
    def batches(rows):
        for row in rows:
            if row.good:
                yield row
    """
    assert told("for batch in batches(loader):", "<list>", program) == {"batches": [(7, "if row.good:")]}


@pytest.mark.parametrize("loader", ["<DataLoader>", "[1, 2]", "7"])
def test_what_is_no_class_of_the_program_is_unknown(loader: str) -> None:
    assert told("for batch in loader:", loader) == {}


def test_two_classes_of_one_name_are_not_told_apart() -> None:
    assert told("for batch in loader:", "<Budget>", CLASS + CLASS) == {}
