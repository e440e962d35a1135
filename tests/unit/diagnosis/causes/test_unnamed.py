"""Verdicts without a code of the catalogue that no saved case shows."""

from __future__ import annotations

from dataclasses import replace

from cases import case

from hangdoc import api
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot


def of_two_hosts(job: JobSnapshot) -> JobSnapshot:
    """The job as one of its two hosts sees it: as many ranks again run where nobody has looked."""
    size = 2 * len(job.ranks)
    environment = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(len(job.ranks)), "GROUP_WORLD_SIZE": "2"}
    here = [replace(r, world_size=size, environment=tuple(sorted(environment.items()))) for r in job.ranks]
    there = [RankSnapshot(rank, "", "elsewhere", world_size=size) for rank in range(len(job.ranks), size)]
    return replace(job, ranks=(*here, *there), world_size=size)


def test_a_command_that_failed_because_of_ranks_that_were_not_seen_blames_none_that_was() -> None:
    job = api.load(case("launcher_failed_alone"))
    assert job.exit_status
    assert all(rank.exit is not None and not rank.exit.status for rank in job.ranks)
    found = api.diagnose(of_two_hosts(job))
    assert (found.outcome, found.cause, found.culprits) == ("crashed", None, ())
    assert found.verdict == "The data does not show which rank failed first."
    assert found.why.startswith("No failure of rank")
    assert "log" in found.fix
