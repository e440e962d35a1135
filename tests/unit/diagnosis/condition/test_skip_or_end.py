"""One call of a loop fewer: did a round skip it, did the loop end, or did the ranks count from different numbers?"""

from __future__ import annotations

import pytest
from made_calls import FILE, Made, made_calls

from hangdoc.diagnosis import diagnose
from hangdoc.model.diagnosis import Branch, Diagnosis
from hangdoc.model.journal import Attribute

FIT = """
def fit(self, loader):
    {loop}
        {first}
        if {test}:
            self.bad += 1
            continue
        dist.all_reduce(x)
    dist.barrier()
"""
REDUCE: Made = ("all_reduce", [(7, "fit"), (9, "main")])
BARRIER: Made = ("barrier", [(8, "fit"), (9, "main")])
CALLS = {rank: [REDUCE] * (3 if rank == 2 else 4) + [BARRIER] * (rank == 2) for rank in range(3)}


def fitted(
    test: str, *, loop: str = "for i, batch in enumerate(loader):", first: str = "pass", bad: tuple[int, ...] = ()
) -> Diagnosis:
    """``bad``: what self.bad is on each rank, where that is seen."""
    own = {rank: [Attribute(FILE, 7, "fit", "bad", str(value), "self")] for rank, value in enumerate(bad)}
    return diagnose(made_calls(FIT.format(loop=loop, first=first, test=test), CALLS, attributes=own))


def branch(found: Diagnosis) -> Branch:
    assert found.cause is not None
    assert found.cause.code == "HD102"
    assert found.culprits == (2,)
    assert found.divergence is not None
    assert found.divergence.branch is not None
    return found.divergence.branch


@pytest.mark.parametrize(
    ("test", "first"),
    [
        ("batch is None", "pass"),
        ("batch.tokens > self.limit", "pass"),
        ("loss > 9", "loss = self.model(batch)"),
        ("random.random() < self.p", "pass"),
    ],
)
def test_a_test_of_the_item_skips_a_round(test: str, first: str) -> None:
    found = fitted(test, first=first)
    assert branch(found).condition == f"if {test}:"
    assert f"`if {test}:`" in found.why
    assert found.confidence == "likely"


@pytest.mark.parametrize("test", ["self.paused", "i % 2", "self.limit > 3"])
def test_any_other_test_leaves_it_to_the_loop(test: str) -> None:
    assert branch(fitted(test)).kind == "loop"


def test_what_a_while_takes_is_its_item() -> None:
    found = fitted("job.late", loop="while self.heap:", first="job = heapq.heappop(self.heap)")
    assert branch(found).condition == "if job.late:"


def test_a_count_of_skips_decides() -> None:
    found = fitted("self.paused", bad=(0, 0, 1))
    assert branch(found).condition == "if self.paused:"
    assert "or left it early" not in found.verdict


@pytest.mark.parametrize("bad", [(0, 0, 0), (2, 1, 1)])
def test_a_count_that_is_no_higher_shows_that_no_round_was_skipped(bad: tuple[int, ...]) -> None:
    assert branch(fitted("batch is None", bad=bad)).kind == "loop"


def test_a_loop_with_a_way_out_may_as_well_have_been_left() -> None:
    loop = "for i, batch in enumerate(loader):\n        if self.done(): break"
    text = FIT.format(loop=loop, first="pass", test="batch is None")
    later: dict[int, list[Made]] = {
        r: [(op, [(line + 1 if name == "fit" else line, name) for line, name in at]) for op, at in calls]
        for r, calls in CALLS.items()
    }
    found = diagnose(made_calls(text, later))
    assert found.divergence is not None
    assert found.divergence.branch is not None
    assert found.divergence.branch.condition != "if batch is None:"


COUNTED = """
def fit(self):
    first = self.latest()
    for step in range(first, self.steps):
        dist.all_reduce(x)
def latest(self):
    try:
        return load(self.path)
    except OSError:
        return 0
def main(self):
    self.fit()
    dist.barrier()
"""
