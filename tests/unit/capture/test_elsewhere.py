"""The ranks of a watched job that run below somebody else's launcher."""

from __future__ import annotations

import os
import socket
from dataclasses import replace

import pytest
from machine import Machine, MadeUp

from hangdoc.capture.find import elsewhere
from hangdoc.capture.find.elsewhere import whole_job
from hangdoc.capture.find.job import Job
from hangdoc.capture.find.joined import StoreReading
from hangdoc.capture.find.target import RankTarget
from hangdoc.capture.read.sockets import ports_in_use
from hangdoc.model.store import RendezvousStore


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(elsewhere, "read_table", made.table)
    return made


def target(machine: Machine, rank: int, pid: int | None, world: int) -> RankTarget:
    told = machine.entries[pid].variables if pid is not None else {}
    identity = "environment" if pid is not None else "expected"
    return RankTarget(rank, pid, identity, world, environment=tuple(sorted(told.items())))


def pids(targets: tuple[RankTarget, ...]) -> dict[int, int | None]:
    return {target.rank: target.pid for target in targets}


def in_store(monkeypatch: pytest.MonkeyPatch, store: RendezvousStore) -> None:
    def read_store(table: MadeUp, job: Job) -> StoreReading:
        return StoreReading(job, store)

    monkeypatch.setattr(elsewhere, "read_store", read_store)


def test_ranks_started_by_hand_in_several_shells(machine: Machine) -> None:
    ranks = machine.by_hand([machine.shell(), machine.shell(), machine.shell()], 29500)
    machine.by_hand([machine.shell(), machine.shell(), machine.shell()], 29600)  # another job
    own = [target(machine, 0, ranks[0], 3), target(machine, 1, None, 3), target(machine, 2, None, 3)]
    assert pids(whole_job(own).targets) == ranks


@pytest.mark.parametrize("restarts", [("0", "0"), ("0", "1")], ids=["equal counts", "one has counted a failure"])
def test_two_nodes_on_one_host(restarts: tuple[str, str], machine: Machine) -> None:
    nodes = [
        machine.torchrun(1, 2, 29500, GROUP_WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", GROUP_RANK=str(node))[1]
        for node in range(2)
    ]
    for node, ranks in enumerate(nodes):
        for rank, pid in ranks.items():
            entry = machine.entries[pid]
            variables = {**entry.variables, "RANK": str(2 * node + rank), "WORLD_SIZE": "4"}
            variables["TORCHELASTIC_RESTART_COUNT"] = restarts[node]
            machine.entries[pid] = replace(entry, environment=variables)
    first, second = nodes
    own = [target(machine, rank, pid, 4) for rank, pid in first.items()]
    assert pids(whole_job(own).targets) == {0: first[0], 1: first[1], 2: second[0], 3: second[1]}


def test_a_whole_job_is_not_looked_for(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = machine.by_hand([machine.shell(), machine.shell()], 29500)
    monkeypatch.setattr(elsewhere, "read_table", lambda: pytest.fail("nobody is missing"))
    own = [target(machine, rank, pid, 2) for rank, pid in ranks.items()]
    assert whole_job(own).targets == tuple(own)


@pytest.mark.parametrize("what", ["user", "hidden", "job"])
def test_what_is_left_alone(machine: Machine, what: str) -> None:
    ranks = machine.by_hand([machine.shell(), machine.shell()], 29500)
    other = machine.entries[ranks[1]]
    machine.entries[ranks[1]] = {
        "user": replace(other, user=1234),
        "hidden": replace(other, environment=None),
        "job": replace(other, environment={**other.variables, "MASTER_PORT": "29501"}),
    }[what]
    own = [target(machine, 0, ranks[0], 2), target(machine, 1, None, 2)]
    assert pids(whole_job(own).targets) == {0: ranks[0], 1: None}


@pytest.mark.parametrize(
    ("address", "silent", "ended", "identity"),
    [
        ("127.0.0.1", (1,), [1], "expected"),  # its listener is gone
        ("127.0.0.1", (), [], "elsewhere"),  # somebody listens there whom we cannot see
        ("10.0.0.1", (1,), [], "elsewhere"),  # its listener may be on another host
    ],
)
def test_a_listener_that_a_rank_had_published(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    silent: tuple[int, ...],
    ended: list[int],
    identity: str,
) -> None:
    pid = machine.add(machine.shell(), RANK="0", WORLD_SIZE="2", MASTER_ADDR=address, MASTER_PORT="29500")
    in_store(monkeypatch, RendezvousStore(address, 29500, joined=(0, 1), silent=silent))
    found = whole_job([target(machine, 0, pid, 2), target(machine, 1, None, 2)])
    assert sorted(found.exits) == ended
    assert found.targets[1].identity == identity


def test_of_a_job_that_ended_those_that_live_elsewhere_did_not(machine: Machine) -> None:
    ranks = machine.by_hand([machine.shell(), machine.shell(), machine.shell()], 29500)
    own = [target(machine, rank, pid if rank == 0 else None, 3) for rank, pid in ranks.items()]
    for rank in (0, 2):
        del machine.entries[ranks[rank]]
    found = whole_job(own, frozenset({ranks[0]}))
    assert [target.identity for target in found.targets] == ["environment", "elsewhere", "expected"]


def test_ports_that_anybody_listens_on() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        before = ports_in_use(os.getpid())
        server.listen()
        during = ports_in_use(os.getpid())
    assert before is not None
    assert during is not None
    assert (port in before, port in during) == (False, True)
    assert ports_in_use(2**22 + 1) is None
