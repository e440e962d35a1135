"""A process that the rank itself started: one that joined the job, one that has ended while the rank waits for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from cases import case

from hangdoc import api
from hangdoc.model.process import Frame, Process, ProcessState
from hangdoc.model.snapshot import JobSnapshot


def with_children(job: JobSnapshot, rank: int, change: Callable[[Process], Process]) -> JobSnapshot:
    """The job, with each child of that rank changed."""

    def of(process: Process) -> Process:
        return dataclasses.replace(process, children=tuple(map(change, process.children)))

    ranks = (dataclasses.replace(r, process=of(r.process)) if r.rank == rank else r for r in job.ranks)
    return dataclasses.replace(job, ranks=tuple(ranks))


def code(job: JobSnapshot) -> str:
    found = api.diagnose(job)
    return found.cause.code if found.cause is not None else ""


def test_a_child_without_the_jobs_variables_has_a_rendezvous_of_its_own():
    job = api.load(case("child_inherits_job"))
    assert code(job) == "HD306"
    for names in ((), (("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "localhost"), ("MASTER_PORT", "1"))):
        apart = with_children(job, 0, lambda child, names=names: dataclasses.replace(child, environment=names))
        assert code(apart) == "HD509"


def test_the_worker_that_died_is_named_and_not_one_that_waits_for_work():
    job = api.load(case("environment_pool"))
    processes = [rank.process for rank in job.ranks]
    dead = [child.pid for each in processes for child in each.children if child.last and child.last.state == "Z"]
    assert [item.pid for item in api.diagnose(job).culprit_processes if item.role == "child"] == dead


def test_without_a_dead_worker_the_one_that_is_read_from_is_followed():
    def alive(child: Process) -> Process:
        return dataclasses.replace(child, looks=tuple(dataclasses.replace(look, state="S") for look in child.looks))

    job = api.load(case("environment_pool"))
    assert code(with_children(job, 1, alive)) == "HD507"


def test_a_worker_that_does_something_else_may_be_the_one_that_is_waited_for():
    def busy(child: Process) -> Process:
        looks = (dataclasses.replace(look, threads=()) if look.state != "Z" else look for look in child.looks)
        return dataclasses.replace(child, looks=tuple(looks))

    assert code(with_children(api.load(case("environment_pool")), 1, busy)) == "HD507"


def test_a_worker_that_reads_from_the_other_end_is_the_one_that_is_waited_for():
    job = api.load(case("environment_pool"))
    (read_from,) = job.ranks[1].process.blocking_files
    here, there = read_from.target.removeprefix("socket:unix ").split(" to ")
    other_end = dataclasses.replace(read_from, target=f"socket:unix {there} to {here}")

    def answering(child: Process) -> Process:
        return dataclasses.replace(child, blocking_files=(other_end,))

    assert code(with_children(job, 1, answering)) == "HD507"


def test_a_worker_of_a_loader_that_waits_for_its_next_task_is_not_the_one_that_is_waited_for():
    job = api.load(case("forked_lock"))
    item = next(item for item in api.diagnose(job).culprit_processes if item.role == "dataloader-worker")
    rank = next(rank for rank in job.ranks if rank.rank == item.rank)
    worker = next(child for child in rank.process.children if child.pid == item.pid)
    takes = (
        Frame("/usr/lib/python3.11/multiprocessing/queues.py", 113, "Queue.get"),
        Frame("/usr/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", 334, "_worker_loop"),
    )

    def at_rest(look: ProcessState) -> ProcessState:
        return dataclasses.replace(look, threads=(dataclasses.replace(look.threads[0], frames=takes),))

    idle = dataclasses.replace(worker, pid=1, looks=tuple(map(at_rest, worker.looks)))
    process = dataclasses.replace(
        rank.process,
        children=(idle, worker),
        blocking_files=tuple(
            dataclasses.replace(each, peers=(idle.pid, worker.pid)) for each in rank.process.blocking_files
        ),
    )
    ranks = (dataclasses.replace(r, process=process) if r.rank == item.rank else r for r in job.ranks)
    named = api.diagnose(dataclasses.replace(job, ranks=tuple(ranks))).culprit_processes
    assert item in named
    assert idle.pid not in [each.pid for each in named]
