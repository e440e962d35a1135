"""Which processes are named beside a culprit: the child at which the chain of its waits ends, if it is the cause."""

from __future__ import annotations

import dataclasses

import pytest
from cases import case

from hangdoc import api
from hangdoc.model.snapshot import JobSnapshot
from hangdoc.report.terminal import render


def with_child(job: JobSnapshot, **changes) -> JobSnapshot:
    """The job, with the one child of rank 0 changed."""
    rank = job.ranks[0]
    (child,) = rank.process.children
    children = (dataclasses.replace(child, **changes),)
    process = dataclasses.replace(rank.process, children=children)
    return dataclasses.replace(job, ranks=(dataclasses.replace(rank, process=process), *job.ranks[1:]))


@pytest.fixture
def job() -> JobSnapshot:
    """Rank 0 waits for a child, which reads from a pipe whose other end only rank 0 holds."""
    return api.load(case("waiting_child"))


def named(job: JobSnapshot) -> list[tuple[int | None, str]]:
    return [(item.rank, item.role) for item in api.diagnose(job).culprit_processes]


def test_a_rank_that_keeps_its_child_waiting_is_the_cause_itself(job):
    assert named(job) == [(0, "rank")]


def test_the_child_is_named_where_nothing_leads_back_to_the_rank(job):
    (child,) = job.ranks[0].process.children
    stuck = with_child(job, blocking_files=())
    assert named(stuck) == [(0, "rank"), (0, "child")]
    assert f"on host0; its child process {child.pid}\n" in render(api.diagnose(stuck))


def test_a_dataloader_worker_is_called_one(job):
    assert named(with_child(job, blocking_files=(), role="dataloader-worker"))[1] == (0, "dataloader-worker")
