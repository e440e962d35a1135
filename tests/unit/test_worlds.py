"""A job that is multiplied along its mesh is one that could have run on so many ranks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds.multiply import PER_HOST, Mesh, multiply

from hangdoc.model.journal import Attribute, Call, Journal, PointToPoint, ProcessGroup
from hangdoc.model.process import Frame, Local, Process, ProcessState, Thread
from hangdoc.model.snapshot import HostSnapshot, JobSnapshot, RankSnapshot


def job(mesh: Mesh) -> JobSnapshot:
    """Each rank knows the default group and one group for each dimension, as torch's device mesh makes them; along the
    last dimension each rank sends to the next."""
    names = {}
    for axis in range(len(mesh.shape)):
        for others in product(*(range(n) for at, n in enumerate(mesh.shape) if at != axis)):
            line = [mesh.rank((*others[:axis], at, *others[axis:])) for at in range(mesh.shape[axis])]
            names[axis, others] = ProcessGroup(str(len(names) + 1), tuple(line), f"mesh_{axis}", "gloo")
    ranks = []
    for rank in range(mesh.size):
        at = mesh.coordinate(rank)
        groups = [ProcessGroup("0", tuple(range(mesh.size)), "default_pg", "gloo")]
        groups += [names[axis, (*at[:axis], *at[axis + 1 :])] for axis in range(len(mesh.shape))]
        calls = [Call(group.name, 1, 1, "broadcast", 0, root=len(group.members) - 1) for group in groups]
        last = groups[-1]
        here = last.members.index(rank)
        messages = []
        if mesh.axis != len(mesh.shape) - 1:
            if here:
                messages.append(PointToPoint(last.name, 2, "recv", last.members[here - 1], 0, 0))
            if here < len(last.members) - 1:
                messages.append(PointToPoint(last.name, 2, "send", last.members[here + 1], 0, 0))
        frame = Frame("/job/t.py", 3, "main", (Local("rank", str(rank)), Local("world_size", str(mesh.size))))
        thread = Thread(100 + rank, "MainThread", "S", frames=(frame,))
        journal = Journal(
            "probe",
            groups=tuple(groups),
            calls=tuple(calls),
            point_to_points=tuple(messages),
            stacks=((frame,),),
            counters=tuple((group.name, 1, 0) for group in groups),
            attributes=(Attribute("/job/t.py", 3, "main", "place", str(at)),),
        )
        process = Process(100 + rank, 99, "rank", looks=(ProcessState(1.0, "S", threads=(thread,)),))
        environment = (("RANK", str(rank)), ("WORLD_SIZE", str(mesh.size)))
        ranks.append(RankSnapshot(rank, "host0", "probe", mesh.size, rank, 0, environment, process, journal=journal))
    launcher = Process(99, 1, "launcher")
    return JobSnapshot(2.0, "watch", world_size=mesh.size, launcher=launcher, ranks=tuple(ranks),
                       hosts=(HostSnapshot("host0", cpu_count=2),))  # fmt: skip


@st.composite
def grown(draw: st.DrawFn) -> tuple[Mesh, int, tuple[int, ...]]:
    shape = tuple(draw(st.lists(st.integers(2, 4), min_size=1, max_size=3)))
    mesh = Mesh(shape, draw(st.integers(0, len(shape) - 1)))
    return mesh, draw(st.integers(1, 4)), (draw(st.integers(0, prod(shape) - 1)),)


@settings(max_examples=40, deadline=None)
@given(grown())
def test_the_ranks_agree_about_groups_and_messages(case: tuple[Mesh, int, tuple[int, ...]]) -> None:
    mesh, factor, blamed = case
    large = multiply(job(mesh), mesh, factor, blamed)
    count = mesh.size * factor
    assert [rank.rank for rank in large.ranks] == list(range(count))
    assert large.world_size == count
    assert len({rank.process.pid for rank in large.ranks}) == count
    assert {rank.host for rank in large.ranks} == {f"host{at}" for at in range(-(-count // PER_HOST))}
    assert {host.name for host in large.hosts} == {rank.host for rank in large.ranks}
    known = Counter()
    members = {}
    for rank in large.ranks:
        numbers = {frame.locals[0].value for look in rank.process.looks for frame in look.threads[0].frames}
        assert numbers == {str(rank.rank)}
        place = tuple(int(part) for part in rank.journal.attributes[0].value.strip("(),").split(","))
        assert mesh.longer(factor).rank(place) == rank.rank
        for group in rank.journal.groups:
            assert rank.rank in group.members
            assert members.setdefault(group.name, group.members) == group.members
            known[group.name] += 1
        for call in rank.journal.calls:
            assert call.root is not None
            assert call.root < len(members[call.group])
    assert known == {name: len(ranks) for name, ranks in members.items()}
    sent = Counter((rank.rank, p.peer) for rank in large.ranks for p in rank.journal.point_to_points if p.op == "send")
    got = Counter((p.peer, rank.rank) for rank in large.ranks for p in rank.journal.point_to_points if p.op == "recv")
    assert sent == got


def test_nothing_changes_where_nothing_is_added() -> None:
    mesh = Mesh((4, 2), 0)
    small = job(mesh)
    same = multiply(small, mesh, 1, (3,))
    assert same.ranks == small.ranks


def test_the_ranks_to_blame_stay_the_only_ones_of_their_kind() -> None:
    mesh = Mesh((2, 2, 2), 1)
    odd = job(mesh)
    changed = [RankSnapshot(6, "host0", "elsewhere") if rank.rank == 6 else rank for rank in odd.ranks]
    large = multiply(JobSnapshot(2.0, "watch", ranks=tuple(changed), hosts=odd.hosts), mesh, 4, (6,))
    assert [rank.rank for rank in large.ranks if rank.identity == "elsewhere"] == [18]
    assert mesh.longer(4).coordinate(18) == mesh.coordinate(6) == (1, 1, 0)


def test_what_depends_on_the_number_of_replicas_is_refused() -> None:
    mesh = Mesh((2, 2), 0)
    with pytest.raises(ValueError, match="the mesh 8"):
        multiply(job(mesh), Mesh((4, 2), 0), 2, (0,))
    with pytest.raises(ValueError, match="every replica"):
        multiply(job(mesh), mesh, 2, (0, 3))
    between = job(mesh).ranks[0]
    message = PointToPoint("0", 2, "send", 2, 0, 0)
    ranks = (replace(between, journal=replace(between.journal, point_to_points=(message,))), *job(mesh).ranks[1:])
    with pytest.raises(ValueError, match="to another replica"):
        multiply(replace(job(mesh), ranks=ranks), mesh, 2, (3,))
