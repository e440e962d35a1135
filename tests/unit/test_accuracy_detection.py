"""How tests/accuracy/detection.py counts what a watch tells of hangs and of healthy jobs."""

from __future__ import annotations

import json
from pathlib import Path

import detection
import pytest
from detection import Result, Told


def told(outcome: str, after: float = 31.0) -> Told:
    return Told(outcome, after + 5, after, 30.0, "")


@pytest.mark.parametrize(
    ("hangs", "reports", "ended", "right", "counts"),
    [
        (True, [told("hang")], True, True, True),
        (True, [told("slow"), told("hang", 95.0)], True, True, True),
        (True, [told("slow"), told("hang", 601.0)], True, False, True),  # patience alone decided
        (True, [told("slow")], False, False, True),
        (True, [told("crashed")], True, False, True),
        (True, [], False, False, True),
        (True, [], True, False, False),
        (False, [], True, True, True),
        (False, [told("slow")], True, True, True),
        (False, [told("slow"), told("hang")], True, False, True),
        (False, [told("crashed")], True, False, True),
    ],
)
def test_a_run_is_judged_by_its_reports(hangs, reports, ended, right, counts):
    result = Result("a", hangs, tuple(reports), 60.0, ended)
    assert (result.right, result.counts) == (right, counts)


def test_false_calm_and_false_alarms_stand_beside_the_times():
    results = [
        *(Result("a", True, (told("hang", after),), 60.0, True) for after in (31.4, 32.0, 40.0)),
        Result("b", True, (told("slow"), Told("hang", 610, 602, 90, "")), 620.0, True),
        Result("c", True, (told("slow"),), 660.0),
        Result("d", True, (), 5.0, True),
        Result("e", False, (), 60.0, True),
        Result("f", False, (told("slow"), told("hang", 62.0)), 60.0, True),
        Result("g", True, (told("hang"),), 60.0, True, "others'"),
    ]
    assert detection.table(results).splitlines()[2:] == [
        "| hangs | 5 | 2 | 4 |  | 2 | 36 | 602 | 602 | 30 to 90 |",
        "| others' hangs | 1 | 0 | 1 |  | 0 | 31 | 31 | 31 | 30 |",
        "| healthy jobs | 2 | 1 | 1 | 1 |  |  |  |  | 30 |",
    ]


def test_the_same_programs_are_drawn_when_others_come(tmp_path):
    programs = [detection.Scenario(name, tmp_path, "", "python", "hang") for name in "abcdefgh"]
    first = detection.drawn(programs, 4)
    assert len(first) == 4
    assert detection.drawn(programs[::-1], 4) == first
    assert set(detection.drawn([*programs, programs[0]], 5)) >= set(first)


def test_a_folder_of_programs_says_which_are_healthy(tmp_path):
    rows = {"a": {"launch": "torchrun --standalone"}, "b": {"launch": "bash b.sh", "healthy": True}}
    (tmp_path / "expect.json").write_text(json.dumps(rows))
    found = [(each.name, each.path, each.launch, each.outcome) for each in detection.of_folder(tmp_path)]
    assert found == [
        ("a", tmp_path / "a.py", "torchrun --standalone", "hang"),
        ("b", tmp_path / "b.sh", "bash", "healthy"),
    ]


def test_the_awkward_jobs_pause_for_longer_than_the_threshold():
    for job in detection.awkward():
        assert 'os.environ.get("PAUSE"' in Path(job.path).read_text()
        assert float(dict(job.environment)["PAUSE"]) > 30
