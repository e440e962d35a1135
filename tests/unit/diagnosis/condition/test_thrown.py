"""Under which condition the program itself raises what a handler catches."""

from __future__ import annotations

import textwrap

from hangdoc.diagnosis.condition.elsewhere.raised import thrown_under
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.snapshot import SourceText

FILE = "/home/me/train.py"
PROGRAM = """
def run(self):
    try:
        self.trial(params)
    except {error}:
        self.pruned += 1
def trial(self, params):
    if loss > self.median:
        raise {raised}("too large")
def elsewhere(self):
    if not self.path:
        raise ValueError
"""


def told(error: str, raised: str) -> dict[str, list[tuple[int, str]]]:
    """Function → (line, source) of each condition, of the handler at line 4."""
    text = textwrap.dedent(PROGRAM).lstrip("\n").format(error=error, raised=raised)
    found = thrown_under(Sources((SourceText(FILE, "<module>", 1, text),)), FILE, 4)
    return {a.function: [(test.line, test.source) for test in a.tests] for a in found}


def test_an_exception_of_the_programs_own() -> None:
    assert told("Pruned", "Pruned") == {"trial": [(7, "if loss > self.median:")]}
    assert told("(OSError, errors.Pruned)", "errors.Pruned") == {"trial": [(7, "if loss > self.median:")]}


def test_pythons_own_exception_counts_where_the_try_calls_the_function() -> None:
    assert told("ValueError", "ValueError") == {"trial": [(7, "if loss > self.median:")]}


def test_a_class_that_the_program_derives_from_what_is_caught() -> None:
    text = (
        textwrap.dedent(PROGRAM)
        .lstrip("\n")
        .format(error="ValueError", raised="Pruned")
        .replace("self.trial(", "next(")
    )
    text += "class Pruned(ValueError):\n    pass\n"
    found = thrown_under(Sources((SourceText(FILE, "<module>", 1, text),)), FILE, 4)
    assert {a.function: [test.line for test in a.tests] for a in found} == {"trial": [7]}


def test_what_nobody_raises_is_not_told() -> None:
    assert told("OSError", "Pruned") == {}
    assert told("Exception", "Pruned") == {}
