"""How tests/accuracy/saved.py judges what is said of a saved case."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
import saved
from statements import places_of_statement

from hangdoc.model.snapshot import SourceText
from hangdoc.scenarios import Scenario

ROW = {"outcome": "hang", "cause": "HD102", "culprits": [2], "lines": ["train.py:9", "train.py:12"]}
NONE_EXPECTED = {"outcome": "slow", "cause": None, "culprits": [], "lines": []}
CODE = textwrap.dedent(
    """\
    def main():
        for step in range(
            steps(),
        ):
            if self.stale and (
                step > 3
            ):
                break
            work()
    """
)
SOURCES = [SourceText("/job/train.py", "main", 30, CODE)]


def document(**changes: Any) -> dict[str, Any]:
    plain = {
        "outcome": "hang",
        "cause": {"code": "HD102"},
        "culprits": [2],
        "alternatives": [],
        "confidence": "likely",
        "divergence": {
            "sides": [{"frame": {"file": "/job/train.py", "line": 9}}, {"frame": None}],
            "branch": None,
        },
        "ranks": [{"rank": 2, "where": {"file": "/job/train.py", "line": 12}}, {"rank": 0, "where": None}],
        "verdict": "",
        "why": "",
    }
    return {**plain, **changes}


def with_branch(line: int, condition: str = "if self.stale and (step > 3):", **changes: Any) -> dict[str, Any]:
    branch = {"file": "/job/train.py", "line": line, "condition": condition, "values": [], "answers": []}
    return document(divergence={"sides": document()["divergence"]["sides"], "branch": branch}, **changes)


def words(expected: dict[str, Any], said: dict[str, Any], **more: Any) -> dict[str, str]:
    return {clause: grade.word for clause, grade in saved.judge("a", expected, said, **more).grades.items()}


@pytest.mark.parametrize(
    ("expected", "said", "differs"),
    [
        (ROW, document(), {}),
        (ROW, document(outcome="slow"), {"outcome": "wrong"}),
        (ROW, document(cause={"code": "HD101"}), {"cause": "wrong"}),
        (ROW, document(cause=None), {"cause": "none"}),
        (ROW, document(culprits=[]), {"culprits": "none", "line": "part"}),
        (ROW, document(culprits=[2, 0]), {"culprits": "wrong"}),
        (ROW, document(culprits=[0], alternatives=[[2]]), {"culprits": "wrong", "line": "part"}),
        (ROW, document(culprits=[0], alternatives=[[2]], confidence="possible"), {"culprits": "part", "line": "part"}),
        (
            ROW,
            document(culprits=[], alternatives=[[0], [2]], confidence="possible"),
            {"culprits": "part", "line": "part"},
        ),
        (ROW, document(culprits=[0], alternatives=[[1]], confidence="possible"), {"culprits": "wrong", "line": "part"}),
        (ROW, document(divergence=None), {"line": "part"}),
        (ROW, document(divergence=None, ranks=[]), {"line": "none"}),
        (
            NONE_EXPECTED,
            document(outcome="slow", cause=None, culprits=[], divergence=None),
            {},
        ),
        (NONE_EXPECTED, document(), {"outcome": "wrong", "culprits": "wrong", "cause": "wrong", "line": "wrong"}),
    ],
)
def test_each_clause_has_a_word_of_its_own(expected, said, differs):
    assert words(expected, said) == {**dict.fromkeys(("outcome", "culprits", "cause", "line"), "right"), **differs}


CONDITION = {"form": "predicate", "at": ["train.py:35"], "text": "if self.stale", "also": ["train.py:31"]}


@pytest.mark.parametrize(
    ("condition", "said", "word"),
    [
        (CONDITION, with_branch(34), "right"),  # its person named another line of the same statement
        (CONDITION, with_branch(36), "right"),
        (CONDITION, with_branch(32), "part"),
        (CONDITION, with_branch(37), "wrong"),  # what it guards
        (CONDITION, with_branch(99), "wrong"),
        (CONDITION, document(), "none"),
        ({**CONDITION, "at": ["other.py:35"], "also": []}, with_branch(34), "wrong"),
        (None, document(), "right"),
        (None, document(divergence=None), "right"),
        (None, with_branch(34), "wrong"),
    ],
)
def test_a_condition_is_judged_by_its_place(condition, said, word):
    row = {**ROW, "reviewed": True, "condition": condition}
    assert words(row, said, sources=SOURCES)["condition"] == word


def test_whoever_blames_nobody_said_nobody():
    undecided = document(culprits=[], alternatives=[[0], [2]], confidence="possible")
    grade = saved.judge("a", {**ROW, "culprits": []}, undecided).grades["culprits"]
    assert grade == saved.Grade("right", "", False)


def test_a_condition_that_nobody_has_reviewed_is_not_judged():
    assert "condition" not in words(ROW, with_branch(34), sources=SOURCES)


METHOD = """\
    @cached(
        1)
    def f(self):
        match x:
            case 1:
                pass
        try:
            g()
        except (
            OSError):
            pass
"""


@pytest.mark.parametrize(
    ("sources", "line", "same"),
    [
        (SOURCES, 30, [30]),
        (SOURCES, 33, [31, 32, 33]),
        (SOURCES, 34, [34, 35, 36]),
        (SOURCES, 38, [38]),
        ([SourceText("/job/train.py", "f", 5, METHOD)], 6, [5, 6, 7]),
        ([SourceText("/job/train.py", "f", 5, METHOD)], 9, [9]),
        ([SourceText("/job/train.py", "f", 5, METHOD)], 11, [11]),
        ([SourceText("/job/train.py", "f", 5, METHOD)], 14, [13, 14]),
        ([SourceText("/job/train.py", "main", 30, "def (")], 30, [30]),
        ([SourceText("/other/train.py", "main", 30, CODE)], 33, [33]),
        ([], 33, [33]),
    ],
)
def test_a_statement_is_its_head_alone(sources, line, same):
    assert places_of_statement(sources, "/job/train.py", line) == {f"train.py:{number}" for number in same}


PROGRAM = Scenario("train", Path("train.py"), "", "python", "hang", branch=("self.stale and",))


@pytest.mark.parametrize(
    ("said", "word"),
    [
        (with_branch(34), "right"),
        (with_branch(31, "for step in range():", why="Rank 2 left it as `self.stale and x`."), "part"),
        (with_branch(31, "for step in range():"), "wrong"),
        (document(why="`self.stale and x` was True."), "part"),
        (document(), "none"),
    ],
)
def test_a_condition_of_a_header_is_judged_by_its_words(said, word):
    assert words(ROW, said, program=PROGRAM)["header"] == word


def test_a_case_is_of_the_program_that_has_its_lines(tmp_path):
    """The name alone is no proof."""
    own, other = tmp_path / "own.py", tmp_path / "other.py"
    own.write_text(f"# a header\n{CODE}")
    other.write_text("def main():\n    pass\n")
    programs = {
        "train": [Scenario("train", path, "", "python", "hang", branch=("a",)) for path in (other, own)],
    }
    found = saved.program_of(SOURCES, programs)
    assert found is not None
    assert found.path == own
    assert saved.program_of(SOURCES, {"train": programs["train"][:1]}) is None
    other_text = "\n".join(f"line_{number}()" for number in range(20))
    another = [*SOURCES, SourceText("/job/train.py", "other", 50, other_text)]
    assert saved.program_of(another, programs) is None
    assert saved.program_of(SOURCES, {"another": programs["train"]}) is None


def some_results() -> list[saved.Judged]:
    reviewed = {**ROW, "reviewed": True, "condition": CONDITION, "origin": "held-out 3"}
    nothing = {**reviewed, "condition": None, "origin": "scenario"}
    return [
        saved.judge("a", reviewed, with_branch(34), SOURCES),
        saved.judge("b", reviewed, with_branch(37, confidence="certain"), SOURCES),
        saved.judge("c", nothing, with_branch(34, confidence="certain"), SOURCES),
        saved.judge("d", nothing, document(culprits=[], divergence=None), SOURCES),
        saved.judge("e", ROW, document(culprits=[0], confidence="certain"), SOURCES),
    ]


def test_the_table_has_a_row_a_group_and_says_what_is_found_and_what_is_precise():
    results = some_results()
    counted = {group: saved.figures(some) for group, some in saved.groups(results).items()}
    assert list(counted) == ["all", "from held-out", "from scenario", "from unknown", "certain", "likely", "possible"]
    rows = {line.split(" | ")[0].strip("| "): line for line in saved.table(counted).splitlines()}
    assert rows["all"] == (
        "| all | 5 | 5/5 (100 %) | 3/5 (60 %) | 3/4 (75 %) | 5/5 (100 %) | 5/5 (100 %) | 3/5 + 1 (60 %) | 1/2 (50 %) | "
        "1/3 (33 %) | – | – | 2/5 (40 %) |"
    )
    assert rows["certain"].endswith("| 0/1 (0 %) | 0/2 (0 %) | – | – | 0/3 (0 %) |")
    assert saved.conditions(counted["all"], 1).splitlines() == [
        "Reviewed conditions: 2, of which 1 right, 0 part, 1 wrong, 0 none said. "
        "None there is in 2 more: 1 none said, 1 wrong.",
        "Conditions of headers: 0, of which 0 right, 0 part, 0 wrong, 0 none said.",
        "Unreviewed: 1 cases.",
    ]


def test_certain_covers_every_clause():
    assert saved.certain_and_wrong(some_results()).splitlines() == [
        "Certain, and something wrong: 3 cases",
        "  b: condition train.py:37 if self.stale and (step > 3):",
        "  c: condition train.py:34 if self.stale and (step > 3):",
        "  e: culprits [0]",
    ]


def test_later_runs_say_what_was_gained_and_lost():
    results = some_results()
    before = json.loads(saved.written(results))
    assert before["figures"]["all"]["culprits"]["said"] == 4
    assert len(saved.written(results).splitlines()) < 30
    assert saved.changes(before["cases"], results) == {"gained": [], "lost": [], "new": []}
    reviewed = {**ROW, "reviewed": True, "condition": CONDITION}
    later = [
        saved.judge("a", reviewed, with_branch(31), SOURCES),
        saved.judge("b", reviewed, with_branch(34), SOURCES),
        saved.judge("e", reviewed, document(cause=None), SOURCES),
        saved.judge("f", ROW, document(), SOURCES),
    ]
    assert saved.changes(before["cases"], later) == {
        "gained": [
            "b: condition wrong: train.py:37 if self.stale and (step > 3): → right",
            "e: culprits wrong: [0] → right",
            "e: line part: train.py:9 → right",
        ],
        "lost": [
            "a: condition right → part: train.py:31 if self.stale and (step > 3):",
            "e: cause right → none",
        ],
        "new": ["e: condition none", "f: the case"],
    }
