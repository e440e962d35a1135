"""Launchers as process trees: what each shows in the environment, and the ranks it must give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hangdoc.capture.find import job_ranks, promised, ranks
from hangdoc.capture.find.ranks import find_ranks
from hangdoc.capture.find.spawned import Spawned, spawned_rank
from hangdoc.capture.find.target import RankTarget
from hangdoc.capture.read import procfs
from hangdoc.capture.read.probe_client import ProbeCounters
from hangdoc.model.process import Frame, Local


@dataclass
class Tree:
    """A made-up /proc."""

    processes: dict[int, procfs.Stat] = field(default_factory=dict)
    environments: dict[int, dict[str, str]] = field(default_factory=dict)
    not_python: set[int] = field(default_factory=set)

    def add(self, pid: int, ppid: int, state: str = "S", python: bool = True, **environment: str) -> None:
        self.processes[pid] = procfs.Stat(pid, "x", state, ppid, 0.0, float(pid), 0)
        self.environments[pid] = {**self.environments.get(ppid, {}), **environment}
        if not python:
            self.not_python.add(pid)


@pytest.fixture
def tree(monkeypatch: pytest.MonkeyPatch) -> Tree:
    made = Tree()
    monkeypatch.setattr(procfs, "table", lambda: made.processes)
    monkeypatch.setattr(procfs, "environment", made.environments.get)
    monkeypatch.setattr(procfs, "is_python", lambda pid: pid not in made.not_python)
    monkeypatch.setattr(procfs, "argv", lambda pid: ())
    return made


def torchrun(tree: Tree, count: int, world: int | None = None, **more: str) -> None:
    tree.add(10, 1)
    for rank in range(count):
        tree.add(
            20 + rank,
            10,
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(world or count),
            TORCHELASTIC_RUN_ID="none",
            **more,
        )


def pids(found: list[RankTarget]) -> dict[int, int | None]:
    return {target.rank: target.pid for target in found}


def counters(pid: int, rank: int | None, world: int | None = 2, restart: int = 0) -> ProbeCounters:
    return ProbeCounters(pid, rank, world, rank, restart, {}, 1, True, 0, 0, False)


def test_torchrun(tree: Tree) -> None:
    torchrun(tree, 3)
    tree.add(30, 21)  # a DataLoader worker carries its parent's environment
    tree.add(31, 30)
    found = find_ranks(10)
    assert pids(found) == {0: 20, 1: 21, 2: 22}
    assert {target.identity for target in found} == {"environment"}
    assert {target.world_size for target in found} == {3}
    assert find_ranks(11) == []


def test_torchrun_inside_a_cluster_job_that_sets_a_rank_for_the_node(tree: Tree) -> None:
    tree.add(9, 1, RANK="0", WORLD_SIZE="1", MASTER_ADDR="x", SLURM_PROCID="0", SLURM_NTASKS="1")
    tree.add(10, 9)
    for rank in range(2):
        tree.add(20 + rank, 10, RANK=str(rank), WORLD_SIZE="2", TORCHELASTIC_RUN_ID="a")
    assert pids(find_ranks(9)) == {0: 20, 1: 21}


def test_a_shell_around_the_script_is_not_the_rank(tree: Tree) -> None:
    tree.add(10, 1)
    tree.add(20, 10, python=False, RANK="0", WORLD_SIZE="1", TORCHELASTIC_RUN_ID="a")
    tree.add(21, 20)
    assert pids(find_ranks(10)) == {0: 21}


def test_only_the_latest_restart_counts(tree: Tree) -> None:
    torchrun(tree, 2, TORCHELASTIC_RESTART_COUNT="0")
    for rank in range(2):
        tree.add(
            40 + rank,
            10,
            RANK=str(rank),
            WORLD_SIZE="2",
            TORCHELASTIC_RUN_ID="none",
            TORCHELASTIC_RESTART_COUNT="1",
        )
    found = find_ranks(10)
    assert pids(found) == {0: 40, 1: 41}
    assert {target.restart for target in found} == {1}


def test_each_agent_counts_its_own_restarts(tree: Tree) -> None:
    """A rank of the second agent has failed: both start their ranks anew, and the first counts nothing."""
    tree.add(5, 1, python=False)
    for agent, restart in ((0, "0"), (1, "1")):
        tree.add(10 + agent, 5)
        for local in range(2):
            rank = 2 * agent + local
            node = {"LOCAL_RANK": str(local), "LOCAL_WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "2"}
            job = {"WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "a", "TORCHELASTIC_RESTART_COUNT": restart}
            tree.add(20 + rank, 10 + agent, RANK=str(rank), **node, **job)
    found = find_ranks(5)
    assert pids(found) == {0: 20, 1: 21, 2: 22, 3: 23}
    assert {target.rank: target.restart for target in found} == {0: 0, 1: 0, 2: 1, 3: 1}
    assert [target.parent for target in found] == [10, 10, 11, 11]
    del tree.processes[21], tree.processes[22]
    gone = {target.rank: (target.pid, target.local_rank, target.restart) for target in find_ranks(5)}
    assert gone == {0: (20, 0, 0), 1: (None, 1, 0), 2: (None, 0, 1), 3: (23, 1, 1)}


def test_expected_and_never_seen(tree: Tree) -> None:
    torchrun(tree, 2, world=4)
    found = find_ranks(10)
    assert pids(found) == {0: 20, 1: 21, 2: None, 3: None}
    assert [target.identity for target in found[2:]] == ["expected", "expected"]


def test_ranks_of_other_nodes_are_not_missing(tree: Tree) -> None:
    torchrun(tree, 2, world=4, LOCAL_WORLD_SIZE="2", GROUP_WORLD_SIZE="2")
    assert pids(find_ranks(10)) == {0: 20, 1: 21}


def test_a_zombie_is_no_rank(tree: Tree) -> None:
    torchrun(tree, 2)
    tree.add(21, 10, "Z", RANK="1")
    assert pids(find_ranks(10)) == {0: 20, 1: None}


def test_a_wild_world_size_gives_no_wild_list(tree: Tree) -> None:
    torchrun(tree, 1, world=999_999_999)
    assert pids(find_ranks(10)) == {0: 20}


@pytest.mark.parametrize("rank", ["", "-1", "x", "99999999999999", "1.5"])
def test_a_rubbish_rank_is_none(tree: Tree, rank: str) -> None:
    tree.add(10, 1)
    tree.add(20, 10, RANK=rank, WORLD_SIZE="2")
    assert find_ranks(10) == []


def test_mpi_and_slurm(tree: Tree) -> None:
    tree.add(10, 1)
    tree.add(20, 10, OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="2", SLURM_PROCID="0", SLURM_NTASKS="1")
    assert pids(find_ranks(10)) == {0: None, 1: 20}
    tree.add(10, 1)
    tree.add(20, 10, SLURM_PROCID="3", SLURM_NTASKS="4", SLURM_LOCALID="1", SLURM_NNODES="2")
    tree.environments[20].pop("OMPI_COMM_WORLD_RANK", None)
    assert pids(find_ranks(10)) == {3: 20}


def test_lightnings_script_launcher(tree: Tree) -> None:
    tree.add(10, 1)
    tree.add(11, 10)  # the main process may itself be below the command
    for local in (1, 2):
        tree.add(20 + local, 11, LOCAL_RANK=str(local), NODE_RANK="0", WORLD_SIZE="3")
    tree.add(30, 21)
    found = find_ranks(10)
    assert pids(found) == {0: 11, 1: 21, 2: 22}
    assert {target.identity for target in found} == {"launcher"}
    assert [target.local_rank for target in found] == [0, 1, 2]


def test_lightning_on_a_second_node(tree: Tree) -> None:
    tree.add(10, 1)
    tree.add(21, 10, LOCAL_RANK="1", NODE_RANK="1", WORLD_SIZE="4")
    assert pids(find_ranks(10)) == {2: 10, 3: 21}


def test_the_probes_word_outranks_the_environment(tree: Tree) -> None:
    torchrun(tree, 2)
    found = find_ranks(10, counters={20: counters(20, 1), 21: counters(21, 0)})
    assert pids(found) == {0: 21, 1: 20}
    assert {target.identity for target in found} == {"probe"}


def test_a_probe_that_does_not_know_its_rank_yet(tree: Tree) -> None:
    torchrun(tree, 2)
    found = find_ranks(10, counters={20: counters(20, None, None), 21: counters(21, 1)})
    assert pids(found) == {0: 20, 1: 21}
    assert [target.identity for target in found] == ["environment", "probe"]


def test_a_probe_outside_the_tree_is_another_jobs(tree: Tree) -> None:
    torchrun(tree, 1)
    assert pids(find_ranks(10, counters={99: counters(99, 5)})) == {0: 20}


def test_sockets_of_living_processes_only(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torchrun(tree, 2)
    for name in ("20.sock", "77.sock", "x.sock", "20.bye"):
        (tmp_path / name).touch()
    asked: list[Path] = []
    monkeypatch.setattr(ranks, "_ask", lambda path, pid, deadline: asked.append(path))
    found = find_ranks(10, tmp_path)
    assert asked == [tmp_path / "20.sock"]
    assert [target.socket for target in found] == [tmp_path / "20.sock", None]
    assert pids(find_ranks(10, tmp_path / "none")) == {0: 20, 1: 21}


@pytest.mark.parametrize(
    ("locals_", "rank"),
    [((Local("fn", "<function>"), Local("i", "3")), 3), ((), None), ((Local("i", "'…'"),), None)],
)
def test_spawned_rank(locals_: tuple[Local, ...], rank: int | None) -> None:
    frame = Frame("/v/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", 90, "_wrap", locals_)
    assert spawned_rank((Frame("/home/me/train.py", 4, "_wrap", (Local("i", "9"),)), frame)) == rank


def test_the_environment_is_kept(tree: Tree) -> None:
    torchrun(tree, 1, MASTER_ADDR="localhost")
    environment: Mapping[str, str] = dict(find_ranks(10)[0].environment)
    assert environment["MASTER_ADDR"] == "localhost"


def test_a_probe_that_cannot_answer_left_its_rank(tree: Tree, tmp_path: Path) -> None:
    tree.add(10, 1)
    tree.add(20, 10)
    tree.add(21, 10)
    for pid, note in ((20, '{"protocol": 1, "bytes": 0, "pid": 20, "rank": 1, "world_size": 2}\n'), (21, "{rubbish")):
        (tmp_path / f"{pid}.sock").touch()  # nobody listens there
        (tmp_path / f"{pid}.rank").write_text(note)
    found = find_ranks(10, tmp_path)
    assert pids(found) == {0: None, 1: 20}
    assert found[1].identity == "probe"


def test_siblings_before_their_first_store(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.add(10, 1)
    for pid in (20, 21, 22):
        tree.add(pid, 10)
    families = [Spawned(10, {20: 0, 21: 1, 22: 2}, by_torch=False)]
    monkeypatch.setattr(job_ranks, "find_spawned", lambda table, parents: families if set(parents) == {10} else [])
    monkeypatch.setattr(promised, "siblings", lambda *_: [20, 21, 22])
    monkeypatch.setattr(promised, "unreaped", lambda *_: [])
    answers = {pid: counters(pid, pid - 20, 3) for pid in (20, 22)}
    assert pids(find_ranks(10, counters=answers)) == {0: 20, 1: None, 2: 22}  # not asked to read stacks
    found = find_ranks(10, counters=answers, deep=True)
    assert pids(found) == {0: 20, 1: 21, 2: 22}
    # It stays while it lives, and is taken at its probe's word when that speaks.
    assert pids(find_ranks(10, counters=answers, known=found)) == {0: 20, 1: 21, 2: 22}
    assert find_ranks(10, counters=answers | {21: counters(21, 1, 3)}, known=found)[1].identity == "probe"
    tree.add(21, 10, "Z")
    assert pids(find_ranks(10, counters=answers, known=found)) == {0: 20, 1: None, 2: 22}


def test_a_family_whose_arguments_say_other_ranks_is_not_believed(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.add(10, 1)
    for pid in (20, 21):
        tree.add(pid, 10)
    monkeypatch.setattr(job_ranks, "find_spawned", lambda *_: [Spawned(10, {20: 0, 21: 1}, by_torch=False)])
    monkeypatch.setattr(promised, "siblings", lambda *_: [20, 21])
    monkeypatch.setattr(promised, "unreaped", lambda *_: [])
    found = find_ranks(10, counters={20: counters(20, 1)}, deep=True)
    assert pids(found) == {0: None, 1: 20}
    assert found[0].identity == "unseen"  # 21 may be it: nobody says that it never came
    monkeypatch.setattr(promised, "siblings", lambda *_: [20])
    assert find_ranks(10, counters={20: counters(20, 1)}, deep=True)[0].identity != "unseen"
    monkeypatch.setattr(promised, "unreaped", lambda *_: [22])
    assert find_ranks(10, counters={20: counters(20, 1)}, deep=True)[0].identity == "unseen"
