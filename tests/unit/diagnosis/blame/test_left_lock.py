"""Who took a lock file for which others try without an end."""

from __future__ import annotations

import dataclasses

import pytest
from cases import case

from hangdoc import api
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.process import OpenFile
from hangdoc.model.snapshot import JobSnapshot


@pytest.fixture
def job() -> JobSnapshot:
    """Ranks 1 to 3 try for the lock file that rank 0 left; it waits in the all_reduce behind it."""
    return api.load(case("lock_file_left_by_an_exception"))


def with_source(job: JobSnapshot, old: str, new: str) -> JobSnapshot:
    changed = tuple(dataclasses.replace(text, text=text.text.replace(old, new)) for text in job.sources)
    assert changed != job.sources
    return dataclasses.replace(job, sources=changed)


def code(found: Diagnosis) -> str:
    return found.cause.code if found.cause is not None else ""


def test_one_of_two_that_are_past_the_lock_may_have_left_it(job: JobSnapshot) -> None:
    first, second, *others = job.ranks
    also = dataclasses.replace(second, process=first.process, journal=first.journal)
    found = api.diagnose(dataclasses.replace(job, ranks=(first, also, *others)))
    assert (code(found), found.culprits, found.confidence) == ("HD504", (0,), "possible")
    assert found.alternatives == ((1,),)


def test_a_rank_that_may_have_gone_round_the_lock_is_no_more_than_possible(job: JobSnapshot) -> None:
    found = api.diagnose(with_source(job, "[evaluator.run(index)]", "[0.0 if rank == 0 else evaluator.run(index)]"))
    assert (found.culprits, found.confidence) == ((0,), "possible")
    assert found.alternatives == ((1, 2, 3),)


def test_a_lock_file_that_is_older_than_the_job_was_left_by_no_rank(job: JobSnapshot) -> None:
    old = (OpenFile(-1, "/data/per_class.lock", (), "named", 1.0),)
    ranks = tuple(
        dataclasses.replace(rank, process=dataclasses.replace(rank.process, named_locks=old)) for rank in job.ranks
    )
    found = api.diagnose(dataclasses.replace(job, ranks=ranks))
    assert (code(found), found.culprits) == ("HD504", (1, 2, 3))
    assert "before the job started" in found.why


def test_a_loop_that_does_not_create_the_file_takes_no_lock(job: JobSnapshot) -> None:
    found = api.diagnose(with_source(job, "os.O_CREAT | os.O_EXCL | os.O_WRONLY", "os.O_WRONLY"))
    assert (code(found), found.culprits) == ("HD508", (0,))
    assert "alone is not where the others are" in found.verdict
