"""Whose end the job's output tells, where nobody saw it."""

from __future__ import annotations

import dataclasses

import pytest
from cases import case

from hangdoc import api
from hangdoc.diagnosis.state.told_ends import with_told_ends
from hangdoc.model.snapshot import JobSnapshot


@pytest.fixture
def job() -> JobSnapshot:
    """Rank 2, a child of rank 0, has ended, and the output has the traceback that ended 'Process tp2:'."""
    return api.load(case("child_rank_ended_by_its_output"))


def exceptions(job: JobSnapshot) -> dict[int, str | None]:
    return {rank.rank: rank.exit.exception for rank in with_told_ends(job).ranks if rank.exit is not None}


def test_the_one_whose_end_is_unknown_has_ended_with_it(job: JobSnapshot) -> None:
    assert exceptions(job) == {2: "KeyError"}


def test_what_no_other_rank_runs_was_a_helper(job: JobSnapshot) -> None:
    (told,) = job.tracebacks
    elsewhere = tuple(dataclasses.replace(f, function="pump") if f.line == 77 else f for f in told.frames)
    assert exceptions(dataclasses.replace(job, tracebacks=(dataclasses.replace(told, frames=elsewhere),))) == {2: None}


def test_an_error_that_was_caught_has_ended_nobody(job: JobSnapshot) -> None:
    caught = dataclasses.replace(job.tracebacks[0], announced="")
    assert exceptions(dataclasses.replace(job, tracebacks=(caught,))) == {2: None}


def test_of_several_tracebacks_one_may_be_another_processs(job: JobSnapshot) -> None:
    other = dataclasses.replace(job.tracebacks[0], announced="Process tp7:")
    assert exceptions(dataclasses.replace(job, tracebacks=(*job.tracebacks, other))) == {2: None}


def test_a_status_that_is_known_counts(job: JobSnapshot) -> None:
    ranks = tuple(
        dataclasses.replace(rank, exit=dataclasses.replace(rank.exit, signal=9)) if rank.exit is not None else rank
        for rank in job.ranks
    )
    assert exceptions(dataclasses.replace(job, ranks=ranks)) == {2: None}
