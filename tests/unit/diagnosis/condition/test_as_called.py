"""Conditions away from the two innermost frames: by their callers' values, their makers, what they fill and choose."""

from __future__ import annotations

import ast
import textwrap

import pytest

from hangdoc.diagnosis.condition.candidates import diverging_guards
from hangdoc.diagnosis.condition.elsewhere.in_forward import conditions_in_forward
from hangdoc.diagnosis.source.guards import guards, quiet_guard
from hangdoc.diagnosis.source.queries import adds_what_it_finds, contexts_around, set_after, set_in_some_rounds
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.values import Values
from hangdoc.model.journal import Attribute, Journal
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot, SourceText

BOARD = """
    class Board:
        def write(self, step):
            if not self.enabled:
                return
            if step % self.every == 0:
                dist.barrier()  # inside
    def train(board):
        for step in range(1, 9):
            dist.all_reduce(step)  # other
            board.write(step)  # call
"""


def source(text: str, file: str = "/job/train.py") -> tuple[Sources, dict[str, int]]:
    """The source, and the number of each line by the word after its ``# ``."""
    text = textwrap.dedent(text).strip("\n")
    lines = text.splitlines()
    places = {line.rpartition("# ")[2]: at for at, line in enumerate(lines, 1) if "# " in line}
    return Sources((SourceText(file, "<module>", 1, text),)), places


def seen(**by_name: tuple[str, str]) -> Values:
    """What train() shows of each name on ranks 0 and 1."""
    ranks = []
    for rank in (0, 1):
        attributes = tuple(
            Attribute("/job/train.py", 10, "train", name, values[rank], "board.write()")
            for name, values in by_name.items()
        )
        ranks.append(RankSnapshot(rank, "h", "environment", journal=Journal("probe", attributes=attributes)))
    return Values(JobSnapshot(taken=0.0, mode="watch", ranks=tuple(ranks)))


def parted(**by_name: tuple[str, str]) -> list[str]:
    """The conditions between a rank in Board.write() and one that is elsewhere in train(), the likeliest first."""
    sources, at = source(BOARD)
    inner = Frame("/job/train.py", at["inside"], "Board.write"), Frame("/job/train.py", at["call"], "train")
    stacks = inner, (Frame("/job/train.py", at["other"], "train"),)
    found = diverging_guards(sources, seen(**by_name), stacks, ((0,), (1,)))
    return [point.guard.condition for point in found if not point.uneven]


def test_the_condition_is_first_whose_values_its_callers_show_to_differ() -> None:
    assert parted(enabled=("True", "False"), every=("4", "4"))[0] == "if not self.enabled:"
    assert parted(enabled=("True", "True"), every=("4", "5"))[0] == "if step % self.every == 0:"


def test_what_only_the_count_of_the_rounds_decides_is_not_the_likeliest() -> None:
    assert parted()[0] == "if not self.enabled:"


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("if kind == 1:\n                return self.asr(x)\n            return self.tag(x)", ["if kind == 1:"]),
        ("return self.asr(x) if kind else self.tag(x)", ["if kind"]),
        ("if x.ndim > 2:\n                x = x + 1\n            return self.tag(x)", []),
    ],
)
def test_what_decides_which_parts_of_a_model_are_used(text: str, conditions: list[str]) -> None:
    sources, _ = source(f"""
    class Net:
        def forward(self, x, kind):
            {text}
    """)
    assert [each.source for each in conditions_in_forward(sources)] == conditions


def test_a_while_counts_the_same_where_it_is_left_and_before_it_counts() -> None:
    tree = ast.parse("def f():\n    while go():\n        sync()\n        step += 1\n        sync()")
    loop = next(g for g in guards(tree, 3) if g.kind == "loop")
    assert set_after(tree, loop, 3) == {"step"}
    assert set_after(tree, loop, 5) == set()


def test_the_condition_that_turns_the_synchronisation_off() -> None:
    found = quiet_guard(ast.parse("def c(self, m):\n    return nullcontext() if self.last else m.no_sync()"))
    assert found is not None
    assert (found.condition, found.taken) == ("if self.last", True)
    assert quiet_guard(ast.parse("x = nullcontext() if cpu else autocast()")) is None


def test_the_functions_that_make_the_contexts_around_a_line() -> None:
    tree = ast.parse("def f(self):\n    with self.context(m), open(p):\n        step()")
    assert [ast.unparse(each.func) for each in contexts_around(tree, 3)] == ["self.context", "open"]


def test_a_case_tests_its_subject() -> None:
    tree = ast.parse("def f(c):\n    match c.kind:\n        case 'save':\n            sync()")
    case = guards(tree, 4)[-1]
    assert (case.kind, case.line, case.names) == ("match", 3, ("c.kind",))


def test_counters_that_some_rounds_alone_set() -> None:
    tree = ast.parse(
        "def f():\n    for x in xs:\n        if bad(x):\n            skipped += 1\n        n += 1\n        sync()"
    )
    loop = next(g for g in guards(tree, 6) if g.kind == "loop")
    assert set_in_some_rounds(tree, loop) == {"skipped"}


def test_counters_to_which_a_round_adds_what_it_finds() -> None:
    tree = ast.parse(
        "def f():\n    for x, mask in xs:\n        spent += int(mask.sum())\n        n += 1\n"
        "        seen += len(x)\n        sync()"
    )
    loop = next(g for g in guards(tree, 6) if g.kind == "loop")
    assert adds_what_it_finds(tree, loop) == {"spent"}
