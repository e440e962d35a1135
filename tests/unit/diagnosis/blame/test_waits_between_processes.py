"""What is proved of waits for something that processes share: nobody seen may still end them."""

from __future__ import annotations

import dataclasses

import pytest
from cases import case

from hangdoc import api
from hangdoc.diagnosis.blame.deciders import story as blame
from hangdoc.diagnosis.context import Case
from hangdoc.model.snapshot import JobSnapshot

NAMES = ("rank_past_process_barrier", "event_not_set")


def with_timeout(job: JobSnapshot) -> JobSnapshot:
    """The same where each main thread's wait ends by itself in a minute."""
    ranks = []
    for rank in job.ranks:
        assert rank.process is not None
        *before, last = rank.process.looks
        main, *others = last.threads
        last = dataclasses.replace(last, threads=(dataclasses.replace(main, wakes_in=60.0), *others))
        ranks.append(dataclasses.replace(rank, process=dataclasses.replace(rank.process, looks=(*before, last))))
    return dataclasses.replace(job, ranks=tuple(ranks))


@pytest.mark.parametrize("name", NAMES)
def test_a_wait_with_a_timeout_is_no_proof(name: str) -> None:
    job = api.load(case(name))
    found, may_end = blame(Case(job)), blame(Case(with_timeout(job)))
    assert (found.proved, may_end.proved) == (True, False)
    assert (type(found.found), found.culprits) == (type(may_end.found), may_end.culprits)
