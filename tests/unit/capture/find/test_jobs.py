"""From any process to its whole job, and never to another one."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine import Machine

from hangdoc.capture.find import rendezvous
from hangdoc.capture.find.job import Job
from hangdoc.capture.find.jobs import Jobs
from hangdoc.capture.find.rendezvous import Meeting
from hangdoc.capture.find.unlabelled import jobs_of_stores, lone_process
from hangdoc.model.process import Frame, Local
from hangdoc.model.snapshot import Unavailable


def job_of(machine: Machine, pid: int) -> Job:
    job = Jobs(machine.table(), near=pid).of(pid)
    assert job is not None
    return job


def ranks_of(job: Job | None) -> dict[int, int | None]:
    return {target.rank: target.pid for target in job.targets} if job is not None else {}


def test_torchrun_from_any_process() -> None:
    machine = Machine()
    agent, ranks = machine.torchrun(machine.shell(), 3, 29500)
    worker = machine.add(ranks[1], "pt_data_worker")
    compiler = machine.add(machine.add(ranks[2], "sh", python=False), "cc1plus", python=False)
    for pid in (agent, *ranks.values(), worker, compiler):
        job = job_of(machine, pid)
        assert ranks_of(job) == ranks
        assert (job.launcher, job.root) == ("torchrun", agent)


def test_a_zombie_and_a_missing_rank() -> None:
    machine = Machine()
    agent, ranks = machine.torchrun(machine.shell(), 2, 29500, LOCAL_WORLD_SIZE="2")
    zombie = machine.add(agent, state="Z", RANK="2")
    job = job_of(machine, zombie)
    assert ranks_of(job) == ranks
    gone = Machine()
    _, ranks = gone.torchrun(1, 3, 29500, LOCAL_WORLD_SIZE="3")
    del gone.entries[ranks[1]]
    assert ranks_of(job_of(gone, ranks[2])) == {**ranks, 1: None}


def test_two_torchruns_with_one_script_and_the_run_id_none() -> None:
    machine = Machine()
    shell = machine.shell()
    (first, ranks), (second, others) = machine.torchrun(shell, 2, 29500), machine.torchrun(shell, 2, 29501)
    assert ranks_of(job_of(machine, ranks[0])) == ranks
    assert ranks_of(job_of(machine, others[0])) == others
    assert {job.root for job in Jobs(machine.table()).all} == {first, second}
    assert Jobs(machine.table()).of(shell) is None
    assert len(Jobs(machine.table()).below(shell)) == 2


@pytest.mark.parametrize("restarts", [("0", "0"), ("0", "1")], ids=["equal counts", "one has counted a failure"])
def test_agents_of_several_nodes_on_one_machine_are_one_job(restarts: tuple[str, str]) -> None:
    machine = Machine()
    common = {"WORLD_SIZE": "4", "GROUP_WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    agents = [machine.add(1, "pt_elastic") for _ in range(2)]
    ranks = {
        node * 2 + local: machine.add(
            agents[node],
            RANK=str(node * 2 + local),
            LOCAL_RANK=str(local),
            GROUP_RANK=str(node),
            MASTER_ADDR="localhost",
            MASTER_PORT="29500",
            TORCHELASTIC_RUN_ID="a",
            TORCHELASTIC_RESTART_COUNT=restarts[node],
            **common,
        )
        for node in range(2)
        for local in range(2)
    }
    for pid in (*agents, *ranks.values()):
        assert ranks_of(job_of(machine, pid)) == ranks
    for pid in ranks.values():  # in other networks they are two jobs that only look the same
        machine.networks[pid] = "net:[2]" if pid in (ranks[0], ranks[1]) else "net:[3]"
    assert len(Jobs(machine.table()).all) == 2


def test_orphans_of_a_launcher_that_was_killed() -> None:
    machine = Machine()
    _, ranks = machine.torchrun(1, 2, 29500)
    for pid in ranks.values():
        machine.entries[pid] = replace(machine.entries[pid], ppid=1)
    job = job_of(machine, ranks[1])
    assert ranks_of(job) == ranks
    assert job.root not in ranks.values()


def test_only_the_latest_restart() -> None:
    machine = Machine()
    agent, old = machine.torchrun(1, 2, 29500)
    new = {
        rank: machine.add(
            agent,
            RANK=str(rank),
            WORLD_SIZE="2",
            MASTER_ADDR="localhost",
            MASTER_PORT="29500",
            TORCHELASTIC_RUN_ID="none",
            TORCHELASTIC_RESTART_COUNT="1",
        )
        for rank in range(2)
    }
    assert ranks_of(job_of(machine, new[0])) == new
    assert ranks_of(job_of(machine, old[0])) == new


def test_ranks_started_by_hand_in_two_terminals() -> None:
    machine = Machine()
    terminals = [machine.shell(machine.add(1, "tmux: server", python=False)) for _ in range(2)]
    ranks, others = machine.by_hand(terminals, 29500), machine.by_hand(terminals, 29501)
    for mine in (ranks, others):
        for pid in mine.values():
            job = job_of(machine, pid)
            assert (ranks_of(job), job.launcher, job.root) == (mine, "environment", None)


def test_ranks_by_hand_without_an_address_belong_to_their_script() -> None:
    machine = Machine()
    scripts = [machine.add(machine.shell(), "bash", ("bash", "run.sh"), python=False) for _ in range(2)]
    jobs = [{rank: machine.add(script, RANK=str(rank), WORLD_SIZE="2") for rank in range(2)} for script in scripts]
    for script, mine in zip(scripts, jobs, strict=True):
        assert ranks_of(job_of(machine, mine[1])) == mine
        assert ranks_of(job_of(machine, script)) == mine


def test_ranks_by_hand_of_which_some_run_elsewhere() -> None:
    machine = Machine()
    pid = machine.add(1, RANK="0", WORLD_SIZE="4", MASTER_ADDR="10.0.0.7", MASTER_PORT="29500")
    assert ranks_of(job_of(machine, pid)) == {0: pid}


def test_ranks_of_one_launcher_with_two_addresses_are_one_job() -> None:
    machine = Machine()
    launcher = machine.add(machine.shell(), argv=("python", "start.py"), torch=False)
    ranks = {
        rank: machine.add(launcher, RANK=str(rank), WORLD_SIZE="3", MASTER_ADDR="localhost", MASTER_PORT=port)
        for rank, port in enumerate(("29500", "29500", "29501"))
    }
    for pid in (launcher, *ranks.values()):
        assert ranks_of(job_of(machine, pid)) == ranks
    # Two jobs that have just begun: the launcher could mean anything, so they stay apart.
    other = Machine()
    launcher = other.add(other.shell(), argv=("python", "sweep.py"), torch=False)
    first = other.by_hand([launcher, launcher], 29500)
    second = {0: other.add(launcher, RANK="0", WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT="29501")}
    assert ranks_of(job_of(other, first[1])) == first
    assert ranks_of(job_of(other, second[0])) == {**second, 1: None}


def test_a_process_that_claims_to_be_one_of_millions_takes_no_memory() -> None:
    machine = Machine()
    launcher = machine.add(machine.shell(), argv=("python", "start.py"), torch=False)
    ranks = [
        machine.add(launcher, RANK=str(rank), WORLD_SIZE="3000000", MASTER_ADDR="localhost", MASTER_PORT=port)
        for rank, port in enumerate(("29500", "29501"))
    ]
    tracemalloc.start()
    try:
        assert ranks_of(job_of(machine, ranks[0])) == {0: ranks[0]}
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_wrapper_before_the_rank() -> None:
    machine = Machine()
    agent = machine.add(1, "pt_elastic")
    variables = {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "a", "MASTER_PORT": "1"}
    wrapper = machine.add(agent, "bash", python=False, **variables)
    rank = machine.add(wrapper)
    assert ranks_of(job_of(machine, wrapper)) == {0: rank}
    python = machine.add(agent, torch=False, **{**variables, "RANK": "1", "WORLD_SIZE": "2"})
    inner = machine.add(python)
    assert job_of(machine, python).pids[-1] == inner


def test_lightning_mpirun_slurm() -> None:
    machine = Machine()
    shell = machine.shell()
    for launcher, (root, ranks) in (
        ("lightning", machine.lightning(shell, 3, 29500)),
        ("mpirun", machine.mpirun(shell, 2, "prterun-1")),
        ("slurm", machine.slurm(2, "7")),
    ):
        child = machine.add(ranks[1], "pt_data_worker")
        for pid in (root, *ranks.values(), child):
            job = job_of(machine, pid)
            assert (job.launcher, job.root, ranks_of(job)) == (launcher, root, ranks)


def test_two_runs_of_each_cluster_launcher() -> None:
    machine = Machine()
    shell = machine.shell()
    jobs = [
        machine.mpirun(shell, 2, "a@1")[1],
        machine.mpirun(shell, 2, "b@1")[1],
        machine.slurm(2, "7", "0")[1],
        machine.slurm(2, "7", "1")[1],
        machine.lightning(shell, 2, 29500)[1],
        machine.lightning(shell, 2, 29501)[1],
    ]
    for ranks in jobs:
        assert ranks_of(job_of(machine, ranks[1])) == ranks


def test_torchrun_in_a_cluster_job() -> None:
    machine = Machine()
    (_, nodes) = machine.slurm(1, "7")
    entry = machine.entries[nodes[0]]
    machine.entries[nodes[0]] = replace(entry, started=1.0, comm="pt_elastic", argv=())
    ranks = {
        rank: machine.add(nodes[0], RANK=str(rank), WORLD_SIZE="2", MASTER_PORT="1", TORCHELASTIC_RUN_ID="a")
        for rank in range(2)
    }
    assert len(Jobs(machine.table()).all) == 1
    assert ranks_of(job_of(machine, nodes[0])) == ranks


def test_programs_of_mpi_without_torch_are_none() -> None:
    machine = Machine()
    launcher, ranks = machine.mpirun(machine.shell(), 2, "a@1")
    machine.without_torch |= set(ranks.values())
    assert Jobs(machine.table()).of(launcher) is None


def test_spawn_asks_only_near_processes() -> None:
    machine = Machine()
    parent, ranks = machine.spawn(machine.shell(), 3)
    _, others = machine.spawn(machine.shell(), 2)
    helper = machine.add(ranks[2], "sh", python=False)
    for pid in (parent, *ranks.values(), helper):
        job = job_of(machine, pid)
        assert (ranks_of(job), job.root, job.launcher) == (ranks, parent, "spawn")
    assert not set(machine.asked) & set(others.values())
    assert ranks_of(job_of(machine, others[0])) == others


def test_spawn_within_a_cluster_job_of_one_task() -> None:
    machine = Machine()
    _, nodes = machine.slurm(1, "7")
    ranks = {rank: machine.add(nodes[0], argv=("python", "-c", "from multiprocessing.spawn import")) for rank in (0, 1)}
    donor = Machine()
    _, made = donor.spawn(1, 2)
    machine.frames = {ranks[rank]: donor.frames[made[rank]] for rank in ranks}
    assert ranks_of(job_of(machine, ranks[0])) == ranks
    assert ranks_of(job_of(machine, nodes[0])) == ranks


def forked(machine: Machine, *values: dict[str, str]) -> tuple[int, list[int]]:
    parent = machine.add(machine.shell())
    pids = []
    for arguments in values:
        pid = machine.add(parent)
        locals_ = tuple(Local(name, value, True) for name, value in arguments.items())
        machine.frames[pid] = (
            Frame("/home/me/train.py", 9, "step"),
            Frame("/home/me/train.py", 5, "run", locals_),
            Frame("/usr/lib/python3.11/multiprocessing/process.py", 314, "BaseProcess._bootstrap"),
            Frame("/home/me/train.py", 20, "<module>"),
        )
        pids.append(pid)
    return parent, pids


def test_forked_processes_by_the_argument_that_counts_them() -> None:
    machine = Machine()
    _, pids = forked(machine, {"a": "0", "rank": "1", "n": "2"}, {"a": "1", "rank": "0", "n": "2"})
    job = job_of(machine, pids[0])
    assert ranks_of(job) == {1: pids[0], 0: pids[1]}
    assert job.launcher == "multiprocessing"


def test_ranks_of_a_fork_server() -> None:
    machine = Machine()
    parent, pids = forked(machine, {"rank": "0"}, {"rank": "1"})
    server_argv = ("python", "-c", "from multiprocessing.forkserver import main; main(8, 9)")
    server = machine.add(parent, argv=server_argv, torch=False)
    for pid in pids:
        machine.entries[pid] = replace(machine.entries[pid], ppid=server, argv=server_argv)
    assert ranks_of(job_of(machine, pids[0])) == dict(enumerate(pids))
    for pid in (server, parent, machine.add(parent, argv=("python", "-c", "helper"))):
        job = job_of(machine, pid)
        assert (ranks_of(job), job.root) == (dict(enumerate(pids)), parent)


@pytest.mark.parametrize(
    "values",
    [
        ({"rank": "0"},),  # a single one is no proof
        ({"rank": "0"}, {"rank": "0"}),
        ({"rank": "1"}, {"rank": "2"}),
        ({"rank": "'…'"}, {"rank": "1"}),
        ({}, {}),
    ],
)
def test_forked_processes_that_nothing_numbers(values: tuple[dict[str, str], ...]) -> None:
    machine = Machine()
    parent, _ = forked(machine, *values)
    assert Jobs(machine.table()).of(parent) is None


def test_an_agent_whose_workers_have_not_come() -> None:
    machine = Machine()
    agent = machine.add(machine.shell(), "pt_elastic")
    job = job_of(machine, agent)
    assert (job.launcher, job.targets, job.root) == ("torchrun", (), agent)


def test_a_process_alone() -> None:
    machine = Machine()
    pid = machine.add(machine.shell())
    machine.frames[pid] = (
        Frame(
            "/v/site-packages/torch/distributed/rendezvous.py", 9, "h", (Local("rank", "1"), Local("world_size", "4"))
        ),
    )
    helper = machine.add(pid, torch=False)
    assert Jobs(machine.table()).of(pid) is None
    job = lone_process(machine.table(), helper)
    assert job is not None
    assert [(target.rank, target.pid, target.world_size) for target in job.targets] == [(1, pid, 4)]
    machine.without_torch.add(pid)
    assert lone_process(machine.table(), helper) is None


Maker = Callable[[Machine, int, int], tuple[int | None, dict[int, int]]]


def _by_hand(machine: Machine, where: int, port: int) -> tuple[int | None, dict[int, int]]:
    return None, machine.by_hand([machine.shell(where), machine.shell(where)], port)


NESTING: tuple[Maker, ...] = (
    lambda machine, where, port: machine.torchrun(where, 2, port),
    lambda machine, where, port: machine.torchrun(where, 3, port),
    _by_hand,
)
OUTER: tuple[Maker, ...] = (
    *NESTING,
    lambda machine, where, port: machine.mpirun(where, 2, f"prterun-{port}"),
    lambda machine, where, port: machine.lightning(where, 3, port),
    lambda machine, where, port: machine.spawn(where, 2),
    lambda machine, where, port: machine.slurm(2, str(port)),
)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_jobs_are_never_mixed(data: st.DataObject) -> None:
    """Jobs of all launchers, side by side, under one shell and within ranks of each other, with helpers everywhere."""
    machine = Machine()
    shells = [machine.shell(), machine.shell(machine.add(1, "tmux: server", python=False))]
    made: list[tuple[int | None, dict[int, int]]] = []
    owner: dict[int, int] = {}
    for number in range(data.draw(st.integers(1, 5))):
        nested = bool(made) and data.draw(st.booleans())
        where = data.draw(st.sampled_from([pid for _, ranks in made for pid in ranks.values()] if nested else shells))
        make = data.draw(st.sampled_from(NESTING if nested else OUTER))
        root, ranks = make(machine, where, 29500 + number)
        made.append((root, ranks))
        owner |= dict.fromkeys(ranks.values(), number)
        if root is not None:
            owner[root] = number
    for pid in data.draw(st.lists(st.sampled_from(sorted(owner)), max_size=6)):
        comm = data.draw(st.sampled_from(["pt_data_worker", "python", "sh"]))
        child = machine.add(pid, comm, ("helper",), python=comm != "sh")
        owner[child] = owner[pid]
    jobs = Jobs(machine.table())
    assert len(jobs.all) == len(made)
    for pid, number in owner.items():
        for found in (jobs.of(pid), job_of(machine, pid)):
            assert ranks_of(found) == made[number][1], (pid, number)
    assert all(jobs.of(shell) is None for shell in shells)


def test_a_rank_told_to_two_processes() -> None:
    machine = Machine()
    script = machine.add(machine.shell(), "bash", python=False, argv=("bash", "start.sh"))
    told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "WORLD_SIZE": "3"}
    pids = [machine.add(script, RANK=rank, **told) for rank in ("0", "1", "1")]
    job = job_of(machine, pids[2])
    assert ranks_of(job) == {0: pids[0], 1: pids[1], 2: None}
    assert [target.rivals for target in job.targets] == [(), (pids[2],), ()]


def test_ranks_that_nothing_shows_are_numbered_by_age(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    parent = machine.add(1)
    oldest_first = [machine.add(parent) for _ in range(4)]
    assert oldest_first != sorted(oldest_first)
    meeting = Meeting("127.0.0.1", 29500, None, frozenset(oldest_first))
    monkeypatch.setattr(rendezvous, "meetings", lambda *_: [meeting])
    monkeypatch.setattr(rendezvous, "read", lambda *_: Unavailable("store", "no answer"))
    (job,) = jobs_of_stores(machine.table(), oldest_first)
    assert ranks_of(job) == dict(enumerate(oldest_first))
    assert "in the order they started" in job.notes[0].why
