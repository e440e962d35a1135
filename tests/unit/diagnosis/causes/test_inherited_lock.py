"""A lock on a file that a rank has closed, and that a process which it forked keeps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from cases import case

from hangdoc import api
from hangdoc.model.process import Process
from hangdoc.model.snapshot import JobSnapshot


@pytest.fixture
def job() -> JobSnapshot:
    """Rank 1 has closed the lock file for which the others wait; its child runs on."""
    return api.load(case("flock_kept_by_forked_child"))


def with_owner(job: JobSnapshot, change: Callable[[Process], Process]) -> JobSnapshot:
    return dataclasses.replace(
        job,
        ranks=tuple(
            dataclasses.replace(rank, process=change(rank.process)) if rank.rank == 1 and rank.process else rank
            for rank in job.ranks
        ),
    )


def test_without_a_child_nobody_has_inherited_it(job: JobSnapshot) -> None:
    found = api.diagnose(with_owner(job, lambda process: dataclasses.replace(process, children=())))
    assert "has closed the lock" not in found.verdict
