"""A snapshot of a small job on a mesh, multiplied: more ranks of the kind that it has, on more hosts.

    python tests/accuracy/worlds/multiply.py PROGRAM SNAPSHOT FACTOR NAME

PROGRAM is one beside this file; its header says what mesh it makes and which dimension holds replicas: ranks that do
the same but for those to blame. SNAPSHOT is what `hangdoc watch` saved of it, on its 8 ranks. That dimension becomes
FACTOR times as long: every new rank is a copy of a replica that is not to blame, with numbers, pids, groups, peers and
hosts of its own (8 ranks a host). The ranks to blame stay the only ones of their kind. The result becomes the case
NAME, whose expectation holds the ranks that the header blames. **Nothing of this ran on so many ranks**: what is real
are stacks, calls and their times of the small job.

Example: data parallel by 4, tensor parallel by 2, FACTOR 8. Rank 2 is in row 1. The job of 32 rows has 64 ranks; rows
4 to 31 are copies of row 0, the data-parallel groups have 32 members, and each new row has a tensor-parallel group.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import tomllib

from hangdoc import api
from hangdoc.model.journal import Attribute, Journal, PointToPoint, ProcessGroup
from hangdoc.model.process import OpenFile, Process, Stack, Thread
from hangdoc.model.snapshot import HostSnapshot, JobSnapshot, RankSnapshot

PER_HOST = 8
_PIDS = 100_000
"""The pids of a copy lie so far from those of the copy before it."""
_RANKS = ("rank", "global_rank", "group_rank", "peer", "dst", "src", "root")
_SIZES = ("world", "world_size")
_PLACES = ("place", "coordinate", "coordinates")
_GROW_WITH_THE_GROUP = ("all_gather", "gather", "scatter", "all_to_all")

Coordinate = tuple[int, ...]


@dataclass(frozen=True)
class Mesh:
    """The shape of torch's device mesh, ranks in row-major order; ``axis`` is the dimension of replicas."""

    shape: tuple[int, ...]
    axis: int

    @property
    def size(self) -> int:
        return len(self.all())

    def all(self) -> list[Coordinate]:
        return list(product(*map(range, self.shape)))

    def coordinate(self, rank: int) -> Coordinate:
        return self.all()[rank]

    def rank(self, coordinate: Coordinate) -> int:
        number = 0
        for at, length in zip(coordinate, self.shape, strict=True):
            number = number * length + at
        return number

    def longer(self, factor: int) -> Mesh:
        shape = [length * (factor if at == self.axis else 1) for at, length in enumerate(self.shape)]
        return Mesh(tuple(shape), self.axis)

    def moved(self, coordinate: Coordinate, to: int) -> Coordinate:
        """``coordinate`` with another place along the replicas."""
        return (*coordinate[: self.axis], to, *coordinate[self.axis + 1 :])


@dataclass(frozen=True)
class Growth:
    """What becomes of a small mesh: which of its replicas each of the large one's is a copy of."""

    small: Mesh
    large: Mesh
    copied: int
    """The replica that new ones are copies of."""

    def original(self, replica: int) -> int:
        return replica if replica < self.small.shape[self.small.axis] else self.copied

    def numbers(self, rank: int) -> Iterator[int]:
        """The ranks of the large mesh that do what ``rank`` does in the small one."""
        coordinate = self.small.coordinate(rank)
        for replica in range(self.large.shape[self.large.axis]):
            if self.original(replica) == coordinate[self.small.axis]:
                yield self.large.rank(self.large.moved(coordinate, replica))

    def beside(self, rank: int, replica: int) -> int:
        """The number of the small mesh's ``rank`` as a member of that replica knows it."""
        return self.large.rank(self.large.moved(self.small.coordinate(rank), replica))


def multiply(snapshot: JobSnapshot, mesh: Mesh, factor: int, blamed: tuple[int, ...]) -> JobSnapshot:
    """The job on a mesh with ``factor`` times as many replicas.

    Raises ``ValueError`` for a job that can't be multiplied so: another number of ranks, no replica without a rank to
    blame, messages between replicas, or calls across replicas whose sizes depend on how many there are.
    """
    if [rank.rank for rank in snapshot.ranks] != list(range(mesh.size)):
        raise ValueError(f"the snapshot has {len(snapshot.ranks)} ranks, the mesh {mesh.size}")
    odd = {mesh.coordinate(rank)[mesh.axis] for rank in blamed}
    free = [replica for replica in range(mesh.shape[mesh.axis]) if replica not in odd]
    if not free:
        raise ValueError("every replica has a rank to blame")
    growth = Growth(mesh, mesh.longer(factor), free[0])
    ranks = sorted(
        (
            _Copy(growth, growth.large.coordinate(number)[mesh.axis]).rank(rank, number)
            for rank in snapshot.ranks
            for number in growth.numbers(rank.rank)
        ),
        key=lambda rank: rank.rank,
    )
    hosts = tuple(_host(snapshot, name) for name in dict.fromkeys(rank.host for rank in ranks))
    return replace(snapshot, world_size=growth.large.size, ranks=tuple(ranks), hosts=hosts, launcher=None, store=None)


def _host(snapshot: JobSnapshot, name: str) -> HostSnapshot:
    offset = _PIDS * int(name.removeprefix("host"))
    launcher = snapshot.launcher and _Shifted(offset).process(snapshot.launcher)
    return HostSnapshot(name, cpu_count=snapshot.hosts[0].cpu_count, identity=name, launcher=launcher)


@dataclass(frozen=True)
class _Shifted:
    """A process whose pids are others, and the words of whose frames may be too."""

    offset: int
    word: Callable[[str, str], str] = lambda _name, value: value

    def process(self, process: Process) -> Process:
        looks = [replace(look, threads=tuple(map(self.thread, look.threads))) for look in process.looks]
        return replace(
            process,
            pid=process.pid + self.offset,
            ppid=process.ppid + self.offset,
            looks=tuple(looks),
            blocking_files=tuple(map(self.file, process.blocking_files)),
            named_locks=tuple(map(self.file, process.named_locks)),
            children=tuple(map(self.process, process.children)),
        )

    def thread(self, thread: Thread) -> Thread:
        files = tuple(map(self.file, thread.blocking_files))
        return replace(thread, tid=thread.tid + self.offset, frames=self.stack(thread.frames), blocking_files=files)

    def file(self, file: OpenFile) -> OpenFile:
        return replace(file, peers=tuple(pid + self.offset for pid in file.peers))

    def stack(self, stack: Stack) -> Stack:
        return tuple(
            replace(frame, locals=tuple(replace(each, value=self.word(each.name, each.value)) for each in frame.locals))
            for frame in stack
        )


@dataclass(frozen=True)
class _Copy:
    """The ranks of one replica of the large mesh."""

    growth: Growth
    replica: int

    def rank(self, rank: RankSnapshot, number: int) -> RankSnapshot:
        """What was seen of the small job's ``rank``, as rank ``number`` of the large one."""
        host = number // PER_HOST
        words = self._words(rank.rank, number)
        copy = self.replica >= self.growth.small.shape[self.growth.small.axis]
        shifted = _Shifted(_PIDS * self.replica * copy, lambda name, value: words.get((name, value), value))
        process = rank.process and replace(shifted.process(rank.process), ppid=rank.process.ppid + _PIDS * host)
        told = {
            "RANK": number,
            "ROLE_RANK": number,
            "LOCAL_RANK": number % PER_HOST,
            "GROUP_RANK": host,
            "WORLD_SIZE": self.growth.large.size,
            "ROLE_WORLD_SIZE": self.growth.large.size,
            "GROUP_WORLD_SIZE": -(-self.growth.large.size // PER_HOST),
        }
        return replace(
            rank,
            rank=number,
            host=f"host{host}",
            world_size=self.growth.large.size,
            local_rank=number % PER_HOST,
            environment=tuple((name, str(told.get(name, value))) for name, value in rank.environment),
            process=process,
            journal=rank.journal and self._journal(rank.journal, rank.rank, words),
        )

    def _words(self, rank: int, number: int) -> dict[tuple[str, str], str]:
        """(name, value) in the small job → value, of variables that hold numbers of ranks."""
        small, large = self.growth.small, self.growth.large
        words = {(name, str(small.size)): str(large.size) for name in _SIZES}
        words |= {(name, str(small.coordinate(rank))): str(large.coordinate(number)) for name in _PLACES}
        return words | {(name, str(old)): str(self._peer(old)) for name in _RANKS for old in range(small.size)}

    def _peer(self, rank: int) -> int:
        """A rank of the small job as this replica knows it."""
        own = self.growth.small.coordinate(rank)[self.growth.small.axis] == self.growth.original(self.replica)
        return self.growth.beside(rank, self.replica) if own else next(self.growth.numbers(rank))

    def _journal(self, journal: Journal, rank: int, words: Mapping[tuple[str, str], str]) -> Journal:
        groups = {group.name: self._group(group) for group in journal.groups}
        wide = {group.name for group in journal.groups if self._spans(group)}
        for call in journal.calls:
            if call.group in wide and call.op.startswith(_GROW_WITH_THE_GROUP):
                raise ValueError(f"the sizes of {call.op} depend on the number of ranks")
        places = {group.name: (group.members, groups[group.name].members) for group in journal.groups}
        calls = [
            replace(
                call,
                group=groups[call.group].name if call.group in groups else call.group,
                root=call.root and places[call.group][1].index(self._peer(places[call.group][0][call.root])),
            )
            for call in journal.calls
        ]

        def named(name: str) -> str:
            return groups[name].name if name in groups else name

        return replace(
            journal,
            groups=tuple(groups.values()),
            calls=tuple(calls),
            point_to_points=tuple(self._message(each, rank, named) for each in journal.point_to_points),
            counters=tuple((named(name), issued, done) for name, issued, done in journal.counters),
            attributes=tuple(_renamed(each, words) for each in journal.attributes),
            traces=tuple(_renamed(each, words) for each in journal.traces),
        )

    def _message(self, message: PointToPoint, rank: int, named: Callable[[str], str]) -> PointToPoint:
        small = self.growth.small
        if message.peer < 0:
            return replace(message, group=named(message.group))
        if small.coordinate(message.peer)[small.axis] != small.coordinate(rank)[small.axis]:
            raise ValueError(f"a message from rank {rank} to another replica, that of rank {message.peer}")
        return replace(message, group=named(message.group), peer=self._peer(message.peer))

    def _spans(self, group: ProcessGroup) -> bool:
        axis = self.growth.small.axis
        return len({self.growth.small.coordinate(member)[axis] for member in group.members}) > 1

    def _group(self, group: ProcessGroup) -> ProcessGroup:
        """Across replicas it has more members; within one, each replica has a group of its own, with its own name."""
        if self._spans(group):
            members = sorted(number for member in group.members for number in self.growth.numbers(member))
            return replace(group, members=tuple(members))
        members = [self._peer(member) for member in group.members]
        copy = self.replica >= self.growth.small.shape[self.growth.small.axis]
        name = f"{group.name}{self.replica:04d}" if copy else group.name
        return replace(group, name=name, members=tuple(members))


def _renamed(attribute: Attribute, words: Mapping[tuple[str, str], str]) -> Attribute:
    return replace(attribute, value=words.get((attribute.name, attribute.value), attribute.value))


def header(program: Path) -> dict[str, Any]:
    """The table in the program's header."""
    lines = program.read_text(encoding="utf-8").partition("# /// hangdoc\n")[2].partition("# ///\n")[0].splitlines()
    return tomllib.loads("\n".join(line.removeprefix("#").strip() for line in lines))


def mesh_of(program: Path) -> Mesh:
    """The mesh that the header tells of."""
    table = header(program)
    names = list(table["mesh"])
    return Mesh(tuple(table["mesh"].values()), names.index(table["replicas"]))


def main(arguments: list[str]) -> int:
    """Multiply, and save the case; see this module's docstring."""
    from add_case import add_case
    from cases import row, write_rows

    from hangdoc.model.codec import dump_snapshot

    program, source, factor, name = Path(arguments[0]), Path(arguments[1]), int(arguments[2]), arguments[3]
    mesh, table = mesh_of(program), header(program)
    blamed = tuple(table["culprits"])
    large = multiply(api.load(source), mesh, factor, blamed)
    numbers = [mesh.longer(factor).rank(mesh.coordinate(rank)) for rank in blamed]
    scratch = source.with_name(f"{name}.hangdoc")
    dump_snapshot(large, scratch)
    add_case(scratch, name)
    word = {"outcome": table["outcome"], "culprits": numbers}
    if "cause" in table:
        word["cause"] = table["cause"]
    write_rows({name: row(name) | word})
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    sys.exit(main(sys.argv[1:]))
