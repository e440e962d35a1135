"""A job's store that a process of another job serves: which process, and which are the job's own."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping

import pytest
from machine import Machine, MadeUp

from hangdoc.capture.find.foreign_server import foreign_server
from hangdoc.capture.find.job import Job
from hangdoc.capture.find.rendezvous import Meeting
from hangdoc.capture.find.target import RankTarget
from hangdoc.capture.read.sockets import Sockets, other_ends, read_sockets
from hangdoc.model.network import Connection
from hangdoc.model.store import ForeignServer

PORT = 29500
INODE = 77


class Served(MadeUp):
    """A machine on which ``server`` (None: one of another user) holds the other end of the ranks' connections."""

    def __init__(self, machine: Machine, server: int | None) -> None:
        super().__init__(machine)
        self.server = server

    def other_ends(self, pid: int, connections: Iterable[Connection]) -> Mapping[int, int]:
        return {INODE: 0}

    def socket_inodes(self, pid: int) -> Iterable[int]:
        return (INODE,) if pid == self.server else ()


def found(machine: Machine, rank: int, server: int | None, root: int | None = None) -> ForeignServer | None:
    """``rank`` is the pid of rank 1 of two, whose rank 0 has no process."""
    connection = Connection(rank, "127.0.0.1", 40000, "127.0.0.1", PORT, "ESTABLISHED")
    meeting = Meeting("127.0.0.1", PORT, None, frozenset({rank}))
    targets = (RankTarget(0, None, "expected", 2), RankTarget(1, rank, "environment", 2))
    job = Job("environment", root, targets, frozenset({rank}))
    return foreign_server(Served(machine, server), job, meeting, Sockets(connections=(connection,)))


def rank_one(machine: Machine, parent: int) -> int:
    return machine.add(parent, RANK="1", WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=str(PORT))


def test_a_rank_of_another_job() -> None:
    machine = Machine()
    ours = rank_one(machine, machine.shell())
    (other,) = machine.by_hand([machine.shell()], PORT).values()
    assert found(machine, ours, other) == ForeignServer(other, ("python", "train.py"), 0, 1)


def test_the_same_job_started_twice() -> None:
    machine = Machine()
    script = machine.add(machine.shell(), "bash", ("bash", "run.sh"), python=False)
    first = machine.by_hand([script, script], PORT)
    again = machine.add(machine.shell(), "bash", ("bash", "run.sh"), python=False)
    server = found(machine, rank_one(machine, again), first[0])
    assert server is not None
    assert (server.pid, server.rank, server.world_size) == (first[0], 0, 2)


def test_a_process_that_is_no_rank_and_one_that_may_not_be_read() -> None:
    machine = Machine()
    ours = rank_one(machine, machine.shell())
    notebook = machine.add(machine.shell(), argv=("python", "other.py"))
    assert found(machine, ours, notebook) == ForeignServer(notebook, ("python", "other.py"))
    assert found(machine, ours, None) == ForeignServer()


def above(machine: Machine, root: int, rank: int) -> int:
    return root


def beside(machine: Machine, root: int, rank: int) -> int:
    return machine.add(root, argv=("python", "store.py"))


def below(machine: Machine, root: int, rank: int) -> int:
    return machine.add(rank, argv=("python", "helper.py"))


def rank_zero_in_another_shell(machine: Machine, root: int, rank: int) -> int:
    return machine.add(machine.shell(), RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(PORT))


def same_script(machine: Machine, root: int, rank: int) -> int:
    return machine.add(machine.shell())


@pytest.mark.parametrize("who", [above, beside, below, rank_zero_in_another_shell, same_script])
def test_processes_that_are_or_may_be_of_the_job(who: Callable[[Machine, int, int], int]) -> None:
    machine = Machine()
    root = machine.add(machine.shell(), "bash", ("bash", "run.sh"), python=False)
    ours = rank_one(machine, root)
    assert found(machine, ours, who(machine, root, ours), root) is None


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_other_end_of_a_connection_on_this_host(family: socket.AddressFamily) -> None:
    with socket.socket(family) as server, socket.socket() as client:
        server.bind(("", 0))
        server.listen()
        client.connect(("127.0.0.1", server.getsockname()[1]))
        accepted, _ = server.accept()
        with accepted:
            own = client.getsockname()
            connections = [each for each in read_sockets([os.getpid()]).connections if each.local_port == own[1]]
            (inode,) = other_ends(os.getpid(), connections)
            assert inode == os.fstat(accepted.fileno()).st_ino
            assert other_ends(os.getpid(), connections)[inode] == os.geteuid()
            assert other_ends(os.getpid(), [Connection(1, *own, "10.0.0.1", 29500, "ESTABLISHED")]) == {}
