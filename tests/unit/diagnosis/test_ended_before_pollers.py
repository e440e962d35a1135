"""A rank ended, and the others poll for what some rank was to do."""

from __future__ import annotations

import dataclasses

import pytest
from cases import case

from hangdoc import api
from hangdoc.model.snapshot import JobSnapshot


@pytest.fixture
def job() -> JobSnapshot:
    """Rank 4 of 5 has returned early, without its marker file; the others poll for marker files."""
    return api.load(case("ended_without_its_marker"))


def test_the_one_that_ended_may_have_left_it_out(job: JobSnapshot) -> None:
    found = api.diagnose(job)
    assert (found.cause and found.cause.code, found.culprits, found.confidence) == ("HD401", (4,), "possible")
    assert found.alternatives == ((0, 1, 2, 3),)
    assert found.divergence is not None
    assert found.divergence.branch is not None
    assert found.divergence.branch.condition == "if not mine:"


def test_where_most_have_ended_those_that_poll_are_late(job: JobSnapshot) -> None:
    *living, last = job.ranks
    ended = tuple(dataclasses.replace(last, rank=rank) for rank in (2, 3))
    found = api.diagnose(dataclasses.replace(job, ranks=(*living[:2], *ended, last)))
    assert (found.cause and found.cause.code, found.culprits) == ("HD508", (0, 1))


def test_a_sleep_that_asks_for_nothing_waits_for_nobody(job: JobSnapshot) -> None:
    texts = []
    for each in job.sources:
        text = each.text.replace("while self.missing(dump):", "for _ in range(99999):")
        texts.append(dataclasses.replace(each, text=text))
    found = api.diagnose(dataclasses.replace(job, sources=tuple(texts)))
    assert (found.cause and found.cause.code, found.culprits) == ("HD508", (0, 1, 2, 3))
