"""Ranks that were gone before anybody looked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from machine import Machine

from hangdoc.capture.find import ended_ranks
from hangdoc.capture.find.ended_ranks import how_they_ended, with_believed_ranks
from hangdoc.capture.find.job import Job
from hangdoc.capture.find.jobs import Jobs
from hangdoc.capture.find.target import RankTarget
from hangdoc.capture.find.unlabelled import lone_process
from hangdoc.model.process import Frame, Local, Process, ProcessExit, ProcessState, Thread
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

KILLED = ProcessExit(at=1.0, signal=9)


@pytest.fixture(autouse=True)
def killed(monkeypatch: pytest.MonkeyPatch) -> None:
    def statuses(zombies: Mapping[int, int]) -> dict[int, ProcessExit]:
        return dict.fromkeys(zombies, KILLED)

    monkeypatch.setattr(ended_ranks, "_statuses", statuses)


def job_of(machine: Machine, pid: int) -> Job:
    job = Jobs(machine.table(), near=pid).of(pid)
    assert job is not None
    return job


def by_script(machine: Machine, states: str) -> tuple[int, dict[int, int]]:
    script = machine.add(machine.shell(), argv=("python", "start.py"), torch=False)
    port = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500", "WORLD_SIZE": str(len(states))}
    ranks = {}
    for rank, state in enumerate(states):
        ranks[rank] = machine.add(script, RANK=str(rank), **port)
        if state == "Z":
            entry = machine.entries[ranks[rank]]
            machine.entries[entry.pid] = replace(entry, state="Z", environment=None, argv=())
    return script, ranks


@pytest.mark.parametrize("states", ["SZS", "ZSSS", "SSZ", "SZZS"])
def test_dead_children_that_nobody_reaped(states: str) -> None:
    machine = Machine()
    _, ranks = by_script(machine, states)
    job = job_of(machine, ranks[states.index("S")])
    targets, ended = how_they_ended(machine.table(), job)
    assert {target.rank: target.pid for target in targets} == ranks
    assert ended == {rank: KILLED for rank, state in enumerate(states) if state == "Z"}


def test_dead_children_that_do_not_fit_name_nobody() -> None:
    machine = Machine()
    script, ranks = by_script(machine, "SZS")
    machine.add(script, state="Z")
    job = job_of(machine, ranks[0])
    assert how_they_ended(machine.table(), job) == (job.targets, {})


def test_torchrun_goes_on_only_past_a_success() -> None:
    machine = Machine()
    agent, ranks = machine.torchrun(1, 3, 29500, LOCAL_WORLD_SIZE="3")
    del machine.entries[ranks[1]]
    _, ended = how_they_ended(machine.table(), job_of(machine, agent))
    assert {rank: (end.status, end.signal) for rank, end in ended.items()} == {1: (0, None)}


def test_a_launcher_that_reaped_a_child_with_some_work_behind_it() -> None:
    machine = Machine()
    script, ranks = by_script(machine, "SSS")
    del machine.entries[ranks[1]]
    assert how_they_ended(machine.table(), job_of(machine, script))[1] == {}
    machine.entries[script] = replace(machine.entries[script], children_cpu=1.7)
    _, ended = how_they_ended(machine.table(), job_of(machine, script))
    assert {rank: (end.status, end.signal) for rank, end in ended.items()} == {1: (None, None)}


def test_the_main_script_that_is_left_alone() -> None:
    machine = Machine()
    main = machine.add(machine.shell())
    machine.frames[main] = (joining_frame(0, 2),)
    dead = machine.add(main, state="Z")
    lone = lone_process(machine.table(), main)
    assert lone is not None
    targets = (*lone.targets, RankTarget(1, None, "expected", 2))
    job = replace(lone, targets=targets)
    assert how_they_ended(machine.table(), job)[1] == {}  # a helper that cost nothing
    machine.entries[dead] = replace(machine.entries[dead], cpu=1.5)
    found, ended = how_they_ended(machine.table(), job)
    assert (found[1].pid, ended) == (dead, {1: KILLED})


def test_who_was_in_the_store_has_been_there() -> None:
    machine = Machine()
    script, ranks = by_script(machine, "SSS")
    del machine.entries[ranks[2]]
    _, ended = how_they_ended(machine.table(), job_of(machine, script), joined=(0, 1, 2))
    assert list(ended) == [2]


def joining_frame(rank: int, world: int) -> Frame:
    names = (Local("rank", str(rank)), Local("world_size", str(world)))
    return Frame("/v/site-packages/torch/distributed/rendezvous.py", 9, "_create_c10d_store", names)


def joining(rank: int, world: int, **environment: str) -> RankSnapshot:
    state = ProcessState(
        1.0, "S", threads=(Thread(10 + rank, "MainThread", "S", frames=(joining_frame(rank, world),)),)
    )
    process = Process(10 + rank, 1, "rank", looks=(state,))
    return RankSnapshot(rank, "here", "environment", 2, rank, 0, tuple(environment.items()), process)


def test_ranks_that_only_the_program_believes_in() -> None:
    snapshot = JobSnapshot(taken=1.0, mode="attach", world_size=2, ranks=(joining(0, 3), joining(1, 3)))
    completed = with_believed_ranks(snapshot)
    assert completed.world_size == 3
    assert [(rank.rank, rank.identity, rank.process is None) for rank in completed.ranks][2:] == [(2, "expected", True)]
    same = JobSnapshot(taken=1.0, mode="attach", world_size=2, ranks=(joining(0, 2), joining(1, 2)))
    assert with_believed_ranks(same) == same
    assert with_believed_ranks(JobSnapshot(taken=1.0, mode="attach")).ranks == ()
