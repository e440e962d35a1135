"""Ranks that wait for no rank: what they wait in has a name."""

from __future__ import annotations

import dataclasses

import pytest
from cases import case

from hangdoc import api
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import JobSnapshot

TORCH = "/usr/lib/python3/site-packages/torch/distributed/distributed_c10d.py"


@pytest.fixture
def job() -> JobSnapshot:
    """Rank 1 waits for something outside the job, rank 0 in a barrier for rank 1."""
    return api.load(case("unread_fifo"))


def in_the_call(job: JobSnapshot, file: str, function: str) -> JobSnapshot:
    """The job, with the main thread of rank 1 waiting natively in that function, which its line calls."""
    rank = job.ranks[1]
    looks = []
    for look in rank.process.looks:
        main, *others = look.threads
        waiting = dataclasses.replace(
            main, frames=(Frame(file, 9, function), *main.frames), wchan="futex_do_wait", syscall=None
        )
        looks.append(dataclasses.replace(look, threads=(waiting, *others)))
    process = dataclasses.replace(rank.process, looks=tuple(looks), blocking_files=())
    return dataclasses.replace(job, ranks=(job.ranks[0], dataclasses.replace(rank, process=process)))


def test_a_rank_that_waits_in_destroy_process_group_is_shutting_down(job: JobSnapshot) -> None:
    """Made by hand: it takes a backend that waits in its shutdown."""
    found = api.diagnose(in_the_call(job, TORCH, "destroy_process_group"))
    assert (found.cause and found.cause.code, found.culprits) == ("HD702", (1,))
    assert found.verdict.startswith("Rank 1 is in destroy_process_group at unread_fifo.py:29 report(); rank 0 waits in")


def test_another_function_of_that_file_is_not(job: JobSnapshot) -> None:
    found = api.diagnose(in_the_call(job, TORCH, "is_initialized"))
    assert found.cause is None or found.cause.code != "HD702"
