"""`watch` and `attach` find the same job: by one table, and by one idea of a rival and of a stranger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from machine import SPAWN_ARGV, Machine

from hangdoc.capture.find import process_table, ranks
from hangdoc.capture.find.jobs import Jobs
from hangdoc.capture.find.promised import with_strangers
from hangdoc.capture.find.ranks import find_ranks
from hangdoc.capture.find.target import RankTarget
from hangdoc.capture.read import procfs

Build = Callable[[Machine], int]


def torchrun(machine: Machine) -> int:
    return machine.torchrun(machine.shell(), 4, 29500)[0]


def torchrun_with_a_rank_missing(machine: Machine) -> int:
    agent, pids = machine.torchrun(machine.shell(), 4, 29500)
    del machine.entries[pids[2]]
    return agent


def mpirun(machine: Machine) -> int:
    return machine.mpirun(machine.shell(), 3, "n1")[0]


def lightning(machine: Machine) -> int:
    return machine.lightning(machine.shell(), 3, 29500)[0]


def script(machine: Machine) -> int:
    parent = machine.add(machine.shell(), "bash", ("bash", "run.sh"), python=False)
    machine.by_hand([parent] * 3, 29500)
    return parent


def rank_told_twice(machine: Machine) -> int:
    parent = machine.add(machine.shell(), "bash", ("bash", "run.sh"), python=False)
    for rank in (0, 1, 1):
        machine.add(parent, RANK=str(rank), WORLD_SIZE="3", MASTER_ADDR="localhost", MASTER_PORT="1")
    return parent


def rank_told_twice_behind_wrappers(machine: Machine) -> int:
    parent = machine.add(machine.shell(), "bash", ("bash", "run.sh"), python=False)
    for rank in (0, 1, 1):
        wrapper = machine.add(
            *(parent, "sh", ("sh", "-c", "python train.py")),
            python=False,
            RANK=str(rank),
            WORLD_SIZE="3",
            MASTER_ADDR="localhost",
            MASTER_PORT="1",
        )
        machine.add(wrapper)
    return parent


def spawned(machine: Machine) -> int:
    return machine.spawn(machine.shell(), 3)[0]


@pytest.mark.parametrize(
    "build",
    [
        *(torchrun, torchrun_with_a_rank_missing, mpirun, lightning, script, spawned),
        *(rank_told_twice, rank_told_twice_behind_wrappers),
    ],
)
def test_both_find_the_same_ranks_and_rivals(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    root = build(machine)
    monkeypatch.setattr(ranks, "read_table", machine.table)
    watched = find_ranks(root, deep=True)
    job = Jobs(machine.table(), near=root).of(root)
    assert job is not None

    def told(targets: list[RankTarget]) -> list[tuple[object, ...]]:
        return [(t.rank, t.pid, t.world_size, t.restart, t.rivals, t.identity) for t in targets]

    parents = () if job.root is None else (job.root,)
    assert told(watched) == told(list(with_strangers(job.targets, parents, machine.table())))
    assert len(watched) >= 3


def test_a_watched_command_is_one_job_where_a_machine_has_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks that were given different ports, and a third that is gone: the faulty start of one job, or two jobs."""
    machine = Machine()
    parent = machine.add(machine.shell(), "bash", ("bash", "run.sh"), python=False)
    for rank, port in enumerate(("29500", "29501")):
        machine.add(parent, RANK=str(rank), WORLD_SIZE="3", MASTER_ADDR="localhost", MASTER_PORT=port)
    monkeypatch.setattr(ranks, "read_table", machine.table)
    assert [target.pid is not None for target in find_ranks(parent)] == [True, True, False]
    assert len(Jobs(machine.table()).all) == 2


def test_a_stranger_may_be_the_rank_that_nobody_is() -> None:
    machine = Machine()
    parent, pids = machine.spawn(1, 3)
    known = [RankTarget(rank, pids[rank], "locals", 3) for rank in (0, 1)]
    absent = RankTarget(2, None, "expected", 3)

    def identity(**more: tuple[int, ...]) -> str:
        return with_strangers([*known, absent], (parent,), machine.table(), **more)[2].identity

    assert identity() == "unseen"  # the third child does not say who it is
    assert identity(ended=(2,)) == "expected"  # how it ended is known
    machine.entries[pids[2]] = type(machine.entries[pids[2]])(pids[2], parent, 9.0, "Z")
    assert identity() == "unseen"  # the third child has ended: it may have been rank 2
    del machine.entries[pids[2]]
    assert identity() == "expected"  # the helper of multiprocessing is none
    machine.add(parent, "pt_data_worker", SPAWN_ARGV)
    assert identity() == "expected"


@pytest.mark.parametrize(
    ("title", "torch", "identity"),
    [
        ("ray::Learner.__init__", False, "unseen"),  # of a rank's class
        ("ray::Critic", True, "unseen"),
        ("python default_worker.py", False, "unseen"),  # it has yet to say what it is
        ("ray::ReplayBuffer", False, "expected"),
        ("ray::IDLE", True, "expected"),
    ],
)
def test_an_actor_of_ray_may_be_the_rank_that_nobody_is(title: str, torch: bool, identity: str) -> None:
    machine = Machine()
    raylet = machine.add(machine.add(1), "raylet", ("raylet",), python=False)
    pids = [machine.add(raylet, "ray::Learner.jo", ("ray::Learner.join",)) for _ in range(2)]
    machine.add(raylet, title[:15], tuple(title.split()), torch=torch)
    known = [RankTarget(rank, pid, "probe", 3) for rank, pid in enumerate(pids)]
    found = with_strangers([*known, RankTarget(2, None, "expected", 3)], (raylet,), machine.table())
    assert found[2].identity == identity


def test_a_search_reads_no_more_than_the_commands_own_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {10: 1} | dict.fromkeys(range(20, 28), 10)
    others = dict.fromkeys(range(1000, 3000), 1)
    variables = {
        pid: {"RANK": str(pid - 20), "WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "a"} for pid in own if pid != 10
    }
    made = {pid: procfs.Stat(pid, "x", "S", ppid, 0.0, float(pid), 0) for pid, ppid in (own | others).items()}
    reads: Counter[str] = Counter()

    def counting(name: str, answer: Callable[[int], object]) -> None:
        def read(pid: int) -> object:
            reads[name] += 1
            return answer(pid)

        monkeypatch.setattr(procfs, name, read)

    monkeypatch.setattr(procfs, "table", lambda: made)
    counting("environment", variables.get)
    counting("is_python", lambda pid: True)
    counting("argv", lambda pid: ())
    for name in ("read_has_torch", "read_stacks"):
        monkeypatch.setattr(process_table.ProcessTable, name, lambda *_: pytest.fail("dear"))
    assert len(find_ranks(10)) == 8
    assert reads == {"environment": 9, "is_python": 8}
