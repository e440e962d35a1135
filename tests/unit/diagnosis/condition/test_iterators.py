"""By what the program's own iterator ends that a loop goes over."""

from __future__ import annotations

import textwrap

import pytest

from hangdoc.diagnosis.condition.loops.iterators import iterator_answers, makes_items_alike
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


MADE = """
    class Config:
        rounds: int = 60
    class Items:
        def __init__(self, cfg, rows):
            self.cfg, self.count = cfg, len(rows)
        def __iter__(self):
            for i in range({bound}):
                {body}
    """


@pytest.mark.parametrize(
    ("bound", "body", "line"),
    [
        ("self.cfg.rounds", "yield make(i)", 11),
        ("8", "yield make(i)", 11),
        ("self.count", "yield make(i)", None),
        ("len(self.rows)", "yield make(i)", None),
        ("self.cfg.unknown", "yield make(i)", None),
        ("self.cfg.rounds", "if ok(i): yield make(i)", None),
        ("self.cfg.rounds", "yield make(i); self.check(); break", None),
        ("self.cfg.rounds", "yield from make(i)", None),
    ],
)
def test_an_iterator_that_makes_equally_many_items_on_every_rank(bound: str, body: str, line: int | None) -> None:
    whole = "def fit(cfg):\n    for item in Items(cfg, rows):\n        step()\n" + textwrap.dedent(
        MADE.format(bound=bound, body=body)
    )
    sources = Sources((SourceText(FILE, "<module>", 1, whole),))
    found = makes_items_alike(sources, lambda name: {}, FILE, 2)
    assert (found.line if found is not None else None) == line


@pytest.mark.parametrize("config", ["Config(rounds=len(files))", "Config(9)", "Config(**read())"])
def test_a_bound_that_is_given_another_value_is_not_written_out(config: str) -> None:
    whole = textwrap.dedent(MADE.format(bound="self.cfg.rounds", body="yield make(i)"))
    whole = f"def fit(cfg):\n    for item in Items({config}, rows):\n        step()\n{whole}"
    assert makes_items_alike(Sources((SourceText(FILE, "<module>", 1, whole),)), lambda name: {}, FILE, 2) is None
