"""The moment of a test's outcome: told where the probe has every value of it, on both sides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hangdoc.diagnosis.verdict import diagnose
from hangdoc.model.branches import BranchCounts
from hangdoc.model.codec import snapshot_from_bytes
from hangdoc.model.snapshot import JobSnapshot

CASE = Path(__file__).parents[2] / "data"
LINE = 55
"""`if loss < self.best:`"""


@pytest.fixture(scope="module")
def job() -> JobSnapshot:
    """scenarios/best_loss.py: rank 1 alone found a better loss."""
    (path,) = CASE.rglob("best_loss.hangdoc")
    return snapshot_from_bytes(path.read_bytes())


def with_counts(job: JobSnapshot, **counts: tuple[tuple[int, int], str, bool]) -> JobSnapshot:
    """By rank ('r0'): how often it was false and true, the last values, whether that is all."""
    file = next(text.file for text in job.sources if text.file.endswith("best_loss.py"))
    ranks = []
    for rank in job.ranks:
        assert rank.process is not None
        told = counts.get(f"r{rank.rank}")
        text = next(t.lines()[LINE] for t in job.sources if t.file == file and t.holds(LINE))
        column = text.index("loss")
        place = (file, "validate", LINE, column, LINE, column + len("loss < self.best"))
        branches = (BranchCounts(*place, "FT", *told),) if told else ()
        ranks.append(replace(rank, process=replace(rank.process, branches=branches)))
    return replace(job, ranks=tuple(ranks))


def told(job: JobSnapshot) -> list[str]:
    return [each.text for each in diagnose(job).evidence if "as the probe recorded" in each.text]


def test_the_moment_of_the_outcome_is_told(job: JobSnapshot) -> None:
    found = diagnose(with_counts(job, r0=((412, 0), "FF", True), r1=((411, 1), "FT", True), r2=((412, 0), "FF", True)))
    said = "`loss < self.best` at best_loss.py:55 was true the last time, and false the 411 before, on rank 1; "
    assert said + "false all 412 times on ranks 0 and 2, as the probe recorded" in [
        each.text for each in found.evidence
    ]
    before = diagnose(job)
    assert (found.culprits, found.why, found.confidence) == (before.culprits, before.why, before.confidence)


@pytest.mark.parametrize(
    "rank_1",
    [((411, 1), "FT", False), ((411, 1), "", True), ((412, 0), "FF", True)],
    ids=["not all that it ever had", "the last is not known", "the same as on the others"],
)
def test_what_is_not_known_is_not_told(job: JobSnapshot, rank_1: tuple[tuple[int, int], str, bool]) -> None:
    every = {"r0": ((412, 0), "FF", True), "r1": rank_1, "r2": ((412, 0), "FF", True)}
    assert told(with_counts(job, **every)) == told(job)


def test_a_rank_that_tells_nothing_leaves_it_untold(job: JobSnapshot) -> None:
    assert told(with_counts(job, r1=((411, 1), "FT", True))) == told(job)


@pytest.mark.xfail(strict=True, reason="told by a rule that is gone, and by no general mechanism yet")
@pytest.mark.parametrize(
    ("since_warm", "said"), [(False, " and never on "), (True, " and, since the first rounds, never on ")]
)
def test_never_is_said_of_a_line_only_if_its_counters_began_with_the_first_call(since_warm: bool, said: str) -> None:
    (path,) = CASE.rglob("dropped_where_queue_is_full_attach.hangdoc")
    job = snapshot_from_bytes(path.read_bytes())
    ranks = []
    for rank in job.ranks:
        assert rank.process is not None
        code = tuple(replace(each, since_warm=since_warm) for each in rank.process.code)
        ranks.append(replace(rank, process=replace(rank.process, code=code)))
    found = diagnose(replace(job, ranks=tuple(ranks)))
    assert any(f"drop_full.py:46 has run on rank 0{said}ranks 1 and 2" in each.text for each in found.evidence)
