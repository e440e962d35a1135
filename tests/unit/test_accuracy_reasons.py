"""How tests/accuracy/reasons.py counts and compares, and that its baseline is of the cases there are."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from cases import names, row
from reasons import BASELINE, Judged, changes, figures, groups, judge, of_case

from hangdoc.model.snapshot import JobSnapshot

RIGHT = Judged("one", "saved", "train.py:3", "train.py:3 x", 1, 0, True, 4, 9, 0.01)
LATER = replace(RIGHT, name="two", said="train.py:9 y", place=3)
MISSED = replace(RIGHT, name="three", said="train.py:9 y", place=0, reached=False, also=1)
SILENT = replace(RIGHT, name="four", said="", place=0, reached=True, listed=0)
NOTHING = replace(RIGHT, name="five", expected="", said="", place=0, reached=False)


def test_what_is_counted() -> None:
    found = figures([RIGHT, LATER, MISSED, SILENT, NOTHING])
    assert (found["cases"], found["recall"], found["rank 1"], found["rank 3"]) == (4, 3, 1, 2)
    assert (found["part first"], found["silent"], found["without one"], found["none said"]) == (1, 1, 1, 1)


def test_the_halves_are_disjoint_and_whole() -> None:
    results = [replace(RIGHT, name=f"case {number}") for number in range(40)]
    found = groups(results)
    halves = [{each.name for each in found[f"saved, {half}"]} for half in ("tuned", "apart")]
    assert not halves[0] & halves[1]
    assert halves[0] | halves[1] == {each.name for each in results}
    assert all(halves)


def test_a_lost_first_place_and_a_lost_slice_are_told() -> None:
    before = {"one": RIGHT.line(), "two": LATER.line()}
    worse = replace(RIGHT, said="train.py:9 y", place=2)
    assert changes(before, [worse, LATER])["lost"] == ["one: rank 1: train.py:3 x → train.py:9 y"]
    assert changes(before, [RIGHT, replace(LATER, reached=False)])["lost"][0].startswith("two: slice")
    assert changes(before, [RIGHT, replace(LATER, place=1)])["gained"][0].startswith("two: rank 1")


def test_a_job_of_which_nothing_is_seen_has_no_reason() -> None:
    found = judge("none", "saved", JobSnapshot(1.0, "attach"), (), ["train.py:3"])
    assert (found.place, found.reached, found.said) == (0, False, "")


@pytest.fixture(scope="module")
def baseline() -> dict[str, dict[str, dict[str, object]]]:
    found: dict[str, dict[str, dict[str, object]]] = json.loads(BASELINE.read_text(encoding="utf-8"))
    return found


def test_the_baseline_has_a_line_for_each_reviewed_case(baseline: dict[str, dict[str, dict[str, object]]]) -> None:
    reviewed = {name for name in names() if row(name).get("reviewed")}
    assert reviewed <= set(baseline["cases"])


@pytest.mark.parametrize("name", ["any_of_monitors_ends_early", "checkpoint_by_one"])
def test_a_case_is_judged_as_the_baseline_says(name: str, baseline: dict[str, dict[str, dict[str, object]]]) -> None:
    assert of_case(name).line() == baseline["cases"][name]
