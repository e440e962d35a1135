"""Reading plain attributes, groups and messages from the memory of a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hangdoc.capture.read.objects import Objects, open_objects

_PROGRAM = """
import collections, sys, time, types

class Config:
    def __init__(self):
        self.limit, self.count, self.large, self.small = 0.5, 12, 1 << 40, -(1 << 40)
        self.on, self.off, self.nothing, self.secret, self.huge = True, False, None, "hunter2", 1 << 200
        self._hidden = 3

class ProcessGroup:
    pass

def isend(): pass
def irecv(): pass

class P2POp:
    def __init__(self, op, peer):
        self.op, self.peer = op, peer

class DeviceMesh:
    def __init__(self, names):
        self._dim_group_names = names

class Trainer:
    def __init__(self):
        self.config, self.step, self._rank, self.tensor = Config(), 7, 1, object()
        self.losses, self.kept, self.late = [1, 2, 3], {1, 2, 3}, collections.deque([1])
        self.reasons, self.known, self.sums = collections.Counter("aab"), {}, collections.defaultdict(int, a=1)
        self.kept.discard(3)
        self.own = type("Counter", (), {})()
    def run(self):
        pass

made = types.ModuleType("made")
dist, group, lone = made, ProcessGroup(), ProcessGroup()
made.distributed_c10d = types.ModuleType("distributed_c10d")
made.distributed_c10d._pg_names = {group: "5"}
made.distributed_c10d._pg_group_ranks = {group: {3: 1, 1: 0, 4: 2}}
trainer, mesh = Trainer(), DeviceMesh(["4", "5"])
if "materialized" in sys.argv:
    vars(trainer)["extra"] = 9
sends = [P2POp(isend, 2), P2POp(irecv, 0)]
print(*(hex(id(each)) for each in (trainer, group, lone, mesh, *sends)), flush=True)
time.sleep(60)
"""


@contextmanager
def _job(*arguments: str) -> Iterator[tuple[Objects, list[str]]]:
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, *arguments], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        addresses = process.stdout.readline().split()
        objects = open_objects(process.pid, [os.__file__])
        assert objects is not None
        with objects:
            yield objects, addresses
    finally:
        process.kill()
        process.communicate(timeout=30)


@pytest.mark.parametrize("arguments", [(), ("materialized",)])
def test_plain_attributes_are_read_and_nothing_else(arguments: tuple[str, ...]) -> None:
    with _job(*arguments) as (objects, (trainer, *_)):
        found = {local.name: local.value for local in objects.attributes("self", f"<Trainer at {trainer}>")}
    assert found == {
        "self.config.limit": "0.5",
        "self.config.count": "12",
        "self.config.large": str(1 << 40),
        "self.config.small": str(-(1 << 40)),
        "self.config.on": "True",
        "self.config.off": "False",
        "self.config.nothing": "None",
        "self.len(known)": "0",
        "self.len(kept)": "2",
        "self.len(late)": "1",
        "self.len(losses)": "3",
        "self.len(reasons)": "2",
        "self.len(sums)": "1",
        "self.step": "7",
        "self._rank": "1",
    } | ({"self.extra": "9"} if arguments else {})


def test_groups_and_messages_are_told() -> None:
    with _job() as (objects, (trainer, group, lone, mesh, send, receive)):
        assert objects.group_of_call({"group": f"<ProcessGroup at {group}>"}) == []  # the table is not found yet
        objects.find_groups(["12", f"<ProcessGroup at {group}>", "<Gone at 0x1000>", f"<Trainer at {trainer}>"])
        for values in (
            {"group": f"<torch._C._distributed_c10d.ProcessGroup at {group}>"},
            {"group": '"5"', "mesh_dim": "0"},
            {"mesh": f"<DeviceMesh at {mesh}>", "mesh_dim": "1"},
        ):
            found = [(local.name, local.value) for local in objects.group_of_call(values)]
            assert found == [("group.name", "5"), ("group.members", "1,3-4")]
        for values in (
            {"group": "None"},
            {"group": f"<ProcessGroup at {lone}>"},
            {"mesh": f"<DeviceMesh at {mesh}>"},  # either dimension
            {"mesh": f"<DeviceMesh at {mesh}>", "mesh_dim": "7"},
        ):
            assert objects.group_of_call(values) == []
        (messages,) = objects.attributes("ops", f"[<P2POp at {send}>, <P2POp at {receive}>]")
        assert (messages.name, messages.value) == ("ops.messages", "isend 2, irecv 0")
        (members,) = objects.attributes("self.group", f"<ProcessGroup at {group}>")
        assert (members.name, members.value) == ("self.group.members", "1,3-4")


@pytest.mark.parametrize("address", ["0x1000", "0x7fffffffffffffff", "0xffffffffffffffff", "0x123"])
def test_an_address_where_no_such_object_lies_gives_nothing(address: str) -> None:
    with _job() as (objects, (trainer, group, *_)):
        assert objects.attributes("self", f"<Trainer at {address}>") == []
        assert objects.attributes("self", f"<Trainer at {group}>") == []
        assert objects.attributes("self", f"<Trainer at {hex(int(trainer, 16) + 8)}>") == []
        assert objects.attributes("ops", f"[<P2POp at {address}>]") == []


def test_no_process_or_another_python_gives_none() -> None:
    assert open_objects(1 << 22, ["/usr/lib/python3.11/os.py"]) is None
    assert open_objects(1 << 22, ["/usr/lib/python3.13t/os.py", "train.py"]) is None
    assert open_objects(1 << 22, ["/usr/lib/python3.99/os.py"]) is None
