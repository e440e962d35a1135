"""What one side alone has left behind: which condition it tells, and when it tells nothing."""

from __future__ import annotations

import pytest
from made_calls import FILE, Made, made_calls

from hangdoc.diagnosis import diagnose
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.journal import Attribute

PROGRAM = """
def fit(self):
    for batch in self.packer:
        dist.all_reduce(batch)
    dist.barrier()

class Filter:
    def __init__(self):
        self.rejected = []
        self.kept = 0

    def keep(self, sample):
        if sample.ratio > self.limit:
            {leave}
            return False
        {more}
        return True

    def note(self, sample):
        self.rejected.append(sample)

class Other:
    def fail(self):
        if self.broken:
            self.rejected.append(1)
"""
REDUCE: Made = ("all_reduce", [(3, "fit"), (40, "main")])
BARRIER: Made = ("barrier", [(4, "fit"), (40, "main")])
CALLS = {rank: [REDUCE] * (3 if rank == 2 else 4) + [BARRIER] * (rank == 2) for rank in range(3)}
TOLD = "`if sample.ratio > self.limit:` (train.py:12) was True on rank 2 and never on ranks 0 and 1"


def told(
    *values: object, leave: str = "self.rejected.append(1)", more: str = "", name: str = "len(rejected)"
) -> Diagnosis:
    own = {rank: [Attribute(FILE, 0, "Filter", name, str(value), "f")] for rank, value in enumerate(values)}
    return diagnose(made_calls(PROGRAM.format(leave=leave, more=more or "pass"), CALLS, traces=own))


@pytest.mark.parametrize(
    ("leave", "name", "values"),
    [
        ("self.rejected.append(1)", "len(rejected)", (0, 0, 1)),
        ("self.bad += 1", "bad", (0, 0, 3)),
        ("self.stats[reason] += 1", "stats[3]", (0, 0, 1)),
        ("self.seen_bad = True", "seen_bad", (False, False, True)),
        ("self.note(sample)", "len(rejected)", (0, 0, 1)),
    ],
)
def test_the_condition_is_the_one_around_what_left_it(leave: str, name: str, values: tuple[object, ...]) -> None:
    found = told(*values, leave=leave, name=name)
    assert TOLD in found.why
    assert found.divergence is not None
    assert found.divergence.branch is not None
    assert [(each.line, each.condition) for each in found.divergence.branch.answers] == [
        (12, "if sample.ratio > self.limit:")
    ]
    assert found.confidence == "likely"


@pytest.mark.parametrize(
    ("values", "leave", "more"),
    [
        ((0, 0, 0), "self.rejected.append(1)", ""),
        ((1, 0, 1), "self.rejected.append(1)", ""),  # another rank has been there and is none the worse for it
        ((4, 4, 5), "self.rejected.append(1)", ""),  # it may only be a round ahead
        ((0, 0, 1), "self.rejected.append(1)", "self.rejected.clear()"),  # what is left may be gone again
    ],
)
def test_what_may_be_innocent_tells_nothing(values: tuple[object, ...], leave: str, more: str) -> None:
    assert "left behind" not in told(*values, leave=leave, more=more).why


def test_a_suite_that_goes_on_keeps_nobody_from_a_call() -> None:
    own = {rank: [Attribute(FILE, 0, "Filter", "len(rejected)", str(rank // 2), "f")] for rank in range(3)}
    text = PROGRAM.format(leave="self.rejected.append(1)", more="pass")
    assert TOLD in diagnose(made_calls(text, CALLS, traces=own)).why
    assert TOLD not in diagnose(made_calls(text.replace("return False", "sample.clip()"), CALLS, traces=own)).why


@pytest.mark.parametrize("test", ["self.rank == 0", "self.step % 10 == 0", "is_main", "dist.is_initialized()"])
def test_conditions_that_part_ranks_anyway_tell_nothing(test: str) -> None:
    text = PROGRAM.format(leave="self.rejected.append(1)", more="pass").replace("sample.ratio > self.limit", test)
    own = {rank: [Attribute(FILE, 0, "Filter", "len(rejected)", str(rank // 2), "f")] for rank in range(3)}
    assert "left behind" not in diagnose(made_calls(text, CALLS, traces=own)).why


def test_what_came_after_the_call_tells_nothing() -> None:
    text = """
    def fit(self):
        for batch in self.packer:
            dist.all_reduce(batch)
        if self.history:
            self.saved.append(1)
        dist.barrier()
    """
    calls = {rank: made[:-1] + [("barrier", [(6, "fit"), (40, "main")])] * (rank == 2) for rank, made in CALLS.items()}
    calls[0] = calls[1] = [REDUCE] * 4
    own = {rank: [Attribute(FILE, 0, "Trainer", "len(saved)", str(rank // 2), "self")] for rank in range(3)}
    assert "left behind" not in diagnose(made_calls(text, calls, traces=own)).why
