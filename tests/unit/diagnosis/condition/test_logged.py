"""On which conditions does it depend which values the ranks reduce together?"""

from __future__ import annotations

import textwrap

import pytest

from hangdoc.diagnosis.condition.elsewhere.logged import logged_under
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.snapshot import SourceText

FILE = "/home/me/module.py"


def conditions(text: str, file: str = FILE) -> list[tuple[str, int]]:
    sources = Sources((SourceText(file, "<module>", 1, textwrap.dedent(text).strip("\n")),))
    return [(each.source, each.line) for each in logged_under(sources)]


def test_around_the_call() -> None:
    hook = """
    def validation_step(self, batch):
        self.log("loss", loss, sync_dist=True)
        if positive.any():
            self.log("recall", recall, sync_dist=True)
    """
    assert conditions(hook) == [("if positive.any():", 3)]
    assert conditions(hook, "/venv/lib/python3.11/site-packages/somelib/module.py") == []


@pytest.mark.parametrize("argument", ["", ", sync_dist=False"])
def test_not_of_what_each_rank_keeps(argument: str) -> None:
    assert conditions(f'if positive.any():\n    self.log("recall", recall{argument})') == []


@pytest.mark.parametrize("condition", ["self.trainer.sanity_checking", "batch_idx % 10 == 0", "stage == 'test'"])
def test_not_what_is_alike_on_all_ranks(condition: str) -> None:
    assert conditions(f'if {condition}:\n    self.log("recall", recall, sync_dist=True)') == []


@pytest.mark.parametrize(
    "made",
    [
        "return {n: self.hits[n] for n in NAMES if self.seen[n]}",
        "out = {n: self.hits[n] for n in NAMES if self.seen[n]}\n            return out",
        "out = {}\n            for n in NAMES:\n"
        "                if self.seen[n]:\n                    out[n] = 1\n            return out",
    ],
)
@pytest.mark.parametrize(
    "call",
    [
        "self.log_dict(self.recall.table(), sync_dist=True)",
        "scores = self.recall.table()\n            self.log_dict(scores, sync_dist=True)",
        "for name, value in self.recall.table().items():\n                self.log(name, value, sync_dist=True)",
    ],
)
def test_the_keys_of_a_dictionary(made: str, call: str) -> None:
    found = conditions(f"""
    class Recall:
        def table(self):
            {made}
    class Module:
        def on_validation_epoch_end(self):
            {call}
    """)
    assert [text.rstrip(":") for text, _ in found] == ["if self.seen[n]"]


def test_too_many_say_nothing() -> None:
    assert conditions("".join(f'if seen[{n}]:\n    self.log("r", r, sync_dist=True)\n' for n in range(3))) == []


LOOP = """
class Mixture:
    def validation_step(self, batch):
        for error, s in zip(errors, {over}):
            self.errors[{key}].append(error)
    def on_validation_epoch_end(self):
        for name, errors in sorted(self.errors.items()):
            self.log(name, mean(errors), sync_dist=True)
"""


def test_a_loop_over_what_the_rank_has_seen() -> None:
    found = conditions(LOOP.format(over="source.tolist()", key="SOURCES[s]"))
    assert found == [
        ("for name, errors in sorted(self.errors.items()):", 6),
        ("self.errors[SOURCES[s]].append(error)", 4),
    ]


@pytest.mark.parametrize(("over", "key"), [("rows", "'all'"), ("rows", "self.stage")])
def test_a_loop_over_what_every_rank_has_the_keys_of(over: str, key: str) -> None:
    assert conditions(LOOP.format(over=over, key=key)) == []
    fixed = LOOP.replace("error, s in zip(errors, {over})", "s in SOURCES").format(over=over, key="s")
    assert conditions(fixed) == []


@pytest.mark.parametrize(("fixed", "expected"), [("", True), ("{n: [] for n in ('a', 'b')}", False)])
def test_a_comprehension_over_what_the_rank_has_seen(fixed: str, expected: bool) -> None:
    adds = "self.seen.setdefault(level, []).append(score)" if not fixed else "self.seen[level].append(score)"
    found = conditions(f"""
    class Book:
        def __init__(self):
            self.seen = {fixed or "{}"}
        def note(self, level, score):
            {adds}
        def summary(self):
            return {{k: mean(v) for k, v in sorted(self.seen.items())}}
    class Module:
        def validation_step(self, batch):
            for level in batch.levels:
                self.book.note(level, score)
        def on_validation_epoch_end(self):
            self.log_dict(self.book.summary(), sync_dist=True)
    """)
    told = ["for k, v in sorted(self.seen.items())", "self.seen.setdefault(level, [])"]
    assert [text for text, _ in found] == (told if expected else [])


@pytest.mark.parametrize(
    ("over", "given", "expected"),
    [("rows", "TASKS[r]", ["for name, scores in self.per_task.items():", "if weight <= 0.0:"]), ("TASKS", "r", [])],
)
def test_a_key_that_a_function_is_given(over: str, given: str, expected: list[str]) -> None:
    found = conditions(f"""
    class Module:
        def validation_step(self, batch):
            for r in {over}:
                self.collect({given}, score, batch.weight)
        def collect(self, task, score, weight):
            if weight <= 0.0:
                return
            self.per_task[task].append(score)
        def on_validation_epoch_end(self):
            for name, scores in self.per_task.items():
                self.log(name, mean(scores), sync_dist=True)
    """)
    assert [text for text, _ in found] == expected
