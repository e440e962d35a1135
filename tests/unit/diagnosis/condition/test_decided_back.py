"""What decides a value that a loop goes over, or that a library was given, some steps back?"""

from __future__ import annotations

import ast
import textwrap

import pytest

from hangdoc.diagnosis.condition.elsewhere.decided_back import decided_back
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.source.settings import place_of
from hangdoc.model.snapshot import JobSnapshot, SourceText

FILE = "/home/me/train.py"


def back(program: str) -> list[str]:
    """The conditions that decide what the loop in `fit` goes over."""
    text = textwrap.dedent(program).strip("\n")
    case = Case(JobSnapshot("attach", None, (), sources=(SourceText(FILE, "<module>", 1, text),)))
    fit = next(n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef) and n.name == "fit")
    loop = next(n for n in ast.walk(fit) if isinstance(n, ast.For))
    at = place_of(case.sources, FILE, loop.lineno)
    assert at is not None
    return [each.source for each in decided_back(case, ((0,), (1,)), at, loop.iter)]


def test_what_the_sampler_of_a_loader_keeps() -> None:
    program = """
    class Easy(Sampler):
        def __iter__(self):
            order = [i for i in range(len(self.rows)) if self.rows[i].level <= self.level]
            return iter(order)
    class Trainer:
        def __init__(self, rows):
            self.loader = DataLoader(rows, batch_size=4, sampler=Easy(rows))
        def fit(self):
            for x in self.loader:
                step(x)
    """
    assert back(program) == ["if self.rows[i].level <= self.level"]


def test_a_test_of_presence_says_less_than_what_decided_it() -> None:
    program = """
    def fit(loader, skip):
        loader = skip_first_batches(loader, skip) if skip else loader
        for x in loader:
            step(x)
    def main(path):
        fit(make(), json.loads(path.read_text()) if path.exists() else 0)
    """
    assert back(program) == ["if path.exists()"]


def test_a_function_that_a_library_is_given() -> None:
    program = """
    def drop(batch):
        kept = [i for i, text in enumerate(batch["text"]) if len(text) > 12]
        return {name: [column[i] for i in kept] for name, column in batch.items()}
    def fit(pages):
        stream = pages.map(drop, batched=True)
        for x in stream:
            step(x)
    """
    assert back(program) == ["if len(text) > 12"]


@pytest.mark.parametrize("test", ["rank == 0", "step % 2", "world_size > 1"])
def test_no_reason(test: str) -> None:
    """The rank shares the items out, and the round and the size of the job are the same on every rank."""
    program = f"""
    def fit(rows):
        kept = [r for step, r in enumerate(rows) if {test}]
        for x in kept:
            go(x)
    """
    assert back(program) == []
