"""Which lines of a program of the library suite are right for its condition, and which programs are drawn."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest
import recorded

from hangdoc.scenarios import Scenario

CODE = textwrap.dedent(
    """\
    def main(self, loss):
        for step in range(9):
            if loss < self.best and (
                step > 3
            ):
                save("a")
            due = self.keeper.is_due(step)
    """
)
REVIEWED = {"form": "predicate", "at": ["train.py:2"], "text": "for step in range(9):"}


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    path = tmp_path / "train.py"
    path.write_text(CODE)
    return Scenario("train", path, "", "torchrun", "hang", branch=("loss < self.best",))


def test_a_piece_of_a_header_means_all_lines_of_its_statement(scenario):
    program = recorded.of_library(scenario, [])
    assert program.places == {"train.py:3", "train.py:4", "train.py:5"}
    assert program.own and not program.reviewed


def test_what_was_reviewed_comes_before_the_header(scenario):
    program = recorded.of_library(scenario, [REVIEWED])
    assert program.places == {"train.py:2"}
    assert program.reviewed == (REVIEWED,)


def test_a_reviewed_line_that_is_another_one_by_now_is_not_taken(scenario):
    moved = {**REVIEWED, "at": ["train.py:6"]}
    assert recorded.of_library(scenario, [moved]) == recorded.of_library(scenario, [])


def test_what_no_test_of_its_own_parted_is_told_apart(scenario):
    nothing = recorded.of_library(scenario, [None])
    assert (nothing.places, nothing.reviewed, nothing.own) == (frozenset(), (None,), False)
    value = {"form": "value", "at": ["train.py:7"], "text": "due = self.keeper.is_due(step)"}
    assert not recorded.of_library(scenario, [value]).own


def test_a_condition_is_judged_by_what_was_reviewed_else_by_the_header(scenario):
    said = {"file": "/job/train.py", "line": 3, "condition": "if loss < self.best and (step > 3):"}
    document = {"divergence": {"branch": said, "sides": []}, "outcome": "hang", "verdict": "", "why": ""}
    assert recorded.of_library(scenario, []).graded(document, ()) == recorded.RIGHT
    assert recorded.of_library(scenario, [REVIEWED]).graded(document, ()) == recorded.WRONG
    silent = {**document, "divergence": None}
    assert recorded.of_library(scenario, [None]).graded(silent, ()) == recorded.RIGHT


def test_a_smaller_sample_is_the_first_of_a_larger_one(scenario):
    found = {name: recorded.of_library(scenario, []) for name in "abcdefgh"}
    assert [*recorded.drawn(found, 3)] == [*recorded.drawn(found, 6)][:3]
    assert {*recorded.drawn(found, 99)} == {*found}


def test_what_a_python_lacks_is_told():
    assert recorded.lacking(Path(sys.executable), ["json", "no_such_module", "no.such"]) == {
        "no_such_module",
        "no.such",
    }
