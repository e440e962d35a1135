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


@pytest.fixture
def suspended() -> JobSnapshot:
    """torchrun is in state T, serves the ranks' store, and the ranks are in init_process_group."""
    return api.load(case("suspended_torchrun_attach"))


def with_launcher(job: JobSnapshot, **changes) -> JobSnapshot:
    """The job, with every look at its launcher changed."""
    looks = tuple(dataclasses.replace(look, **changes) for look in job.launcher.looks)
    return dataclasses.replace(job, launcher=dataclasses.replace(job.launcher, looks=looks))


def test_a_stopped_launcher_is_the_culprit_where_the_ranks_wait_on_its_store(suspended):
    found = api.diagnose(suspended)
    (culprit,) = found.culprit_processes
    assert (culprit.rank, culprit.pid, culprit.role) == (None, suspended.launcher.pid, "launcher")
    assert (found.outcome, found.cause.code, found.culprits) == ("hang", "HD403", ())
    traced = api.diagnose(with_launcher(suspended, state="t", tracer_pid=99))
    assert "held by a debugger" in traced.verdict
    assert "certain" not in traced.confidence


def test_a_launcher_that_runs_or_serves_no_store_is_no_culprit(suspended):
    assert named(with_launcher(suspended, state="S")) == []
    (host,) = suspended.hosts
    elsewhere = tuple(dataclasses.replace(entry, port=entry.port + 1) for entry in host.listening)
    served = dataclasses.replace(suspended, hosts=(dataclasses.replace(host, listening=elsewhere),))
    assert named(served) == []
