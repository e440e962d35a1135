"""Store keys that one rank alone sets, at a line that a condition leads past."""

from __future__ import annotations

import dataclasses

from cases import case

from hangdoc import api
from hangdoc.model.process import Process
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

NAME = "rooms_of_long_requests_not_posted"


def code_of(job: JobSnapshot, rank: int) -> Process:
    process = next(each.process for each in job.ranks if each.rank == rank)
    assert process is not None
    return process


def as_if_it_ran(rank: int, what: int) -> JobSnapshot:
    """The job, in which the rank has run the lines that rank ``what`` has."""
    job = api.load(case(NAME))
    code = code_of(job, what).code

    def of(found: RankSnapshot) -> RankSnapshot:
        if found.rank != rank or found.process is None:
            return found
        return dataclasses.replace(found, process=dataclasses.replace(found.process, code=code))

    return dataclasses.replace(job, ranks=tuple(map(of, job.ranks)))


def test_who_alone_comes_to_the_line_is_to_blame() -> None:
    found = api.diagnose(as_if_it_ran(1, 1))
    assert (found.culprits, found.cause and found.cause.code) == ((1,), "HD305")
    assert found.divergence is not None
    assert found.divergence.branch is not None
    assert found.divergence.branch.line == 87
