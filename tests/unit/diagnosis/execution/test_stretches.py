"""What two ranks tested since the last call that both made alike, and when that is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangdoc.diagnosis.execution.stretches import stretches
from hangdoc.model.branches import MOST_BRANCHES, MOST_TAKEN, BranchCounts, Taken
from hangdoc.model.journal import Call, Journal, ProcessGroup
from hangdoc.model.process import Frame, Process
from hangdoc.model.snapshot import RankSnapshot

FILE = "/home/me/train.py"
TESTS = tuple(BranchCounts(FILE, "train", n, 4, n, 9, "TF", (9, 9), "", whole=True) for n in range(5))


def rank(calls: str, taken: str, number: int = 0, tests: tuple[BranchCounts, ...] = TESTS) -> RankSnapshot:
    """``calls``: 'all_reduce@61 barrier@70', issued at 100, 200, …; ``taken``: '150:0T 160:1F'."""
    made = [each.split("@") for each in calls.split()]
    journal = Journal(
        "probe",
        (ProcessGroup("0", (0, 1)),),
        tuple(Call("0", n, n, op, n - 1, created_ns=100 * n) for n, (op, _) in enumerate(made, 1)),
        stacks=tuple((Frame(FILE, int(line), "train"),) for _, line in made),
    )
    order = tuple(Taken(int(what[:-1]), what[-1], int(at)) for at, what in (each.split(":") for each in taken.split()))
    return RankSnapshot(number, "n", "probe", process=Process(1, 0, "", branches=tests, taken=order), journal=journal)


def told(mine: RankSnapshot, theirs: RankSnapshot) -> tuple[str, str, str] | None:
    """'all_reduce #1', '0T 1F', '0T 1T'."""
    found = stretches(mine, theirs)
    if found is None:
        return None
    call, *sides = found
    one, other = (" ".join(f"{test.line}{step.value}" for step, test in zip(*side, strict=True)) for side in sides)
    return f"{call.op} #{call.sequence}", one, other


SIBLING = rank("all_reduce@61 all_reduce@61 all_reduce@61", "110:0T 210:0T 220:1F")


def test_what_came_after_the_last_call_alike() -> None:
    culprit = rank("all_reduce@61 all_reduce@61 barrier@70", "205:0T 215:1T")
    assert told(culprit, SIBLING) == ("all_reduce #2", "0T 1T", "0T 1F")


def test_a_call_of_another_line_is_another_call() -> None:
    culprit = rank("all_reduce@61 all_reduce@88 all_reduce@61", "205:0T 215:1T")
    assert told(culprit, rank("all_reduce@61 all_reduce@61", "110:0T 120:1F")) is None, "kept since #2 alone"
    assert told(rank("all_reduce@61 all_reduce@88", "105:2T"), rank("all_reduce@61 all_reduce@61", "110:0T")) == (
        *("all_reduce #1", "2T", "0T"),
    )


def test_a_side_without_tests_since_then_is_empty() -> None:
    culprit = rank("all_reduce@61 all_reduce@61 barrier@70", "")
    assert told(culprit, SIBLING) == ("all_reduce #2", "", "0T 1F")


@pytest.mark.parametrize(
    "other",
    [
        replace(SIBLING, journal=None),
        replace(SIBLING, process=None),
        rank("all_reduce@61 all_reduce@61", "110:0T", tests=()),
        rank("broadcast@3 broadcast@3", "110:0T"),
    ],
)
def test_nothing_where_one_was_not_recorded_or_no_call_is_alike(other: RankSnapshot) -> None:
    assert told(rank("all_reduce@61 all_reduce@61", "110:0T"), other) is None


def test_nothing_where_so_many_came_that_the_oldest_were_left_out() -> None:
    many = " ".join(f"{at}:0T" for at in range(201, 201 + MOST_TAKEN))
    culprit = rank("all_reduce@61 all_reduce@61 barrier@70", many)
    assert told(culprit, SIBLING) is None
    assert told(rank("all_reduce@61 all_reduce@61 barrier@70", f"150:0T {many}"), SIBLING) is not None


def test_a_test_that_one_side_may_have_gone_by_untold_is_left_out() -> None:
    hot = (*TESTS[:1], replace(TESTS[1], whole=False), *TESTS[2:])
    culprit = rank("all_reduce@61 all_reduce@61 barrier@70", "205:0F", tests=hot)
    assert told(culprit, SIBLING) == ("all_reduce #2", "0F", "0T")


def test_nor_is_one_that_a_side_with_too_many_tests_does_not_tell_of() -> None:
    many = tuple(replace(TESTS[0], line=1000 + n) for n in range(MOST_BRANCHES))
    culprit = rank("all_reduce@61 all_reduce@61 barrier@70", "205:0F", tests=(*TESTS[:1], *many))
    assert told(culprit, SIBLING) == ("all_reduce #2", "0F", "0T")


def test_places_that_are_none_are_passed_over() -> None:
    culprit = rank("all_reduce@61 all_reduce@61 barrier@70", "205:99T 206:0T")
    assert told(culprit, SIBLING) == ("all_reduce #2", "0T", "0T 1F")
