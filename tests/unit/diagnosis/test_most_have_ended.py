"""Ranks have ended well, another waits for its device, and nothing shows the calls of either."""

from __future__ import annotations

import dataclasses

import pytest
from cases import case

from hangdoc import api
from hangdoc.model.snapshot import JobSnapshot


@pytest.fixture
def job() -> JobSnapshot:
    """Rank 3 of 4 has ended with status 0; the others wait for their devices."""
    return api.load(case("device_one_has_ended_attached"))


def test_one_that_has_ended_left_the_others_alone(job: JobSnapshot) -> None:
    found = api.diagnose(job)
    assert (found.culprits, found.alternatives) == ((3,), ())


def test_the_last_one_of_many_may_have_made_a_call_too_many(job: JobSnapshot) -> None:
    ended = job.ranks[3]
    ranks = tuple(rank if rank.rank in (0, 3) else dataclasses.replace(ended, rank=rank.rank) for rank in job.ranks)
    found = api.diagnose(dataclasses.replace(job, ranks=ranks))
    assert (found.culprits, found.alternatives, found.confidence) == ((1, 2, 3), ((0,),), "possible")
