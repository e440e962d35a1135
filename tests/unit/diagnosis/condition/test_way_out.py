"""Is the way out of a loop known, or may its bound have been another one on a rank?"""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest
from made_calls import FILE, Made, made_calls

from hangdoc.diagnosis import diagnose
from hangdoc.model.branches import BranchCounts, Taken
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.journal import Attribute
from hangdoc.model.kinds import Confidence
from hangdoc.model.snapshot import JobSnapshot

FIT = """
def fit(self, {given}deadline):
    for i in range({bound}):
        if time.time() > deadline:
            break
        dist.all_reduce(x)
    {after}
    dist.barrier()
"""
REDUCE: Made = ("all_reduce", [(5, "fit"), (9, "main")])
BARRIER: Made = ("barrier", [(7, "fit"), (9, "main")])
CALLS = {rank: [REDUCE] * (3 if rank == 3 else 4) + [BARRIER] * (rank == 3) for rank in range(4)}


def fitted(bound: str, after: str, name: str, value: str, ranks: int = 4) -> Diagnosis:
    """``name`` has that value on the first ``ranks`` ranks, as far as is seen."""
    shown = {name: value} if "." not in name else {}
    values = {r: {"fit": {"i": "2" if r == 3 else "3", **(shown if r < ranks else {})}} for r in range(4)}
    owner, _, last = name.rpartition(".")
    own = {r: [Attribute(FILE, 5, "fit", last, value, owner)] for r in range(ranks)} if owner else {}
    text = FIT.format(given="" if owner else f"{name}, ", bound=bound, after=after)
    return diagnose(made_calls(text, CALLS, values, attributes=own))


def is_sure(found: Diagnosis) -> bool:
    assert found.cause is not None
    assert found.cause.code == "HD102"
    return found.confidence == Confidence.CERTAIN


@pytest.mark.parametrize("value", ["[…]", "[4, 4, 4, 3]", "<list>", "<Tensor>"])
def test_what_is_not_shown_whole_or_is_no_number_may_hold_another_bound(value: str) -> None:
    assert not is_sure(fitted("sizes[0]", "pass", "sizes", value))
    assert not is_sure(fitted("sizes", "pass", "sizes", value))


def test_a_rank_that_does_not_show_it_may_have_another_one() -> None:
    assert not is_sure(fitted("steps", "pass", "steps", "4", ranks=2))


@pytest.mark.parametrize("after", ["self.todo = self.full", "trainer.todo += 1", "self.todo, rest = self.split()"])
def test_a_bound_that_is_set_again_was_perhaps_another_one(after: str) -> None:
    assert not is_sure(fitted("self.todo", after, "self.todo", "4"))


def test_a_local_bound_that_is_set_again_was_perhaps_another_one() -> None:
    assert not is_sure(fitted("steps", "steps = full", "steps", "4"))


def test_an_attribute_that_another_method_sets_was_perhaps_another_one() -> None:
    set_again = (
        "self.renew()\n    dist.barrier()\n\ndef renew(self):\n    self.todo = self.full\n\ndef rest():\n    y = 1"
    )
    assert not is_sure(fitted("self.todo", set_again, "self.todo", "4"))


def test_a_loop_that_may_have_ended_by_itself_is_not_surely_where_the_rank_left() -> None:
    text = FIT.format(given="", bound="loader", after="pass").replace("in range(loader)", "in loader")
    found = diagnose(made_calls(text, CALLS, {r: {"fit": {"i": "2" if r == 3 else "3"}} for r in range(4)}))
    assert not is_sure(found)
    assert found.confidence == Confidence.LIKELY


def recorded(job: JobSnapshot) -> JobSnapshot:
    """With what each rank decided in ``fit``: another round, and not to break; rank 3 to break in its last one."""
    loop = next(node for node in ast.walk(ast.parse(job.sources[0].text)) if isinstance(node, ast.For))
    assert isinstance(loop.body[0], ast.If)
    ends = [(n.lineno, n.col_offset, n.end_lineno or 0, n.end_col_offset or 0) for n in (loop.iter, loop.body[0].test)]
    tests = tuple(BranchCounts(FILE, "fit", *each, "TF", (0, 0)) for each in ends)
    ranks = []
    for rank in job.ranks:
        assert rank.journal is not None
        assert rank.process is not None
        calls = tuple(replace(each, created_ns=10 * number) for number, each in enumerate(rank.journal.calls, 1))
        breaks = ["T" if call is calls[-1] and rank.rank == 3 else "F" for call in calls]
        taken = [
            Taken(test, value, call.created_ns - 2 + test)
            for call, way in zip(calls, breaks, strict=True)
            for test, value in enumerate(("T", way))
        ]
        process = replace(rank.process, branches=tests, taken=tuple(taken))
        ranks.append(replace(rank, process=process, journal=replace(rank.journal, calls=calls)))
    return replace(job, ranks=tuple(ranks))


def test_a_loop_that_a_rank_was_recorded_to_break_out_of_is_left_there_and_has_not_ended() -> None:
    text = FIT.format(given="", bound="loader", after="pass").replace("in range(loader)", "in loader")
    found = diagnose(recorded(made_calls(text, CALLS)))
    assert is_sure(found)
    assert found.confidence == Confidence.CERTAIN
    assert found.divergence is not None
    assert found.divergence.branch is not None
    assert found.divergence.branch.condition == "if time.time() > deadline:"


def test_of_two_ways_out_neither_is_certain() -> None:
    text = FIT.format(given="", bound="9", after="pass")
    text = text.replace("if time.time() > deadline:\n            break", "if late: break\n        if done(): break")
    found = diagnose(made_calls(text, CALLS, {r: {"fit": {"i": "2" if r == 3 else "3"}} for r in range(4)}))
    assert not is_sure(found)
