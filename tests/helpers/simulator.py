"""Jobs that never ran: random programs of collectives, one fault, and what a snapshot of the hang would show.

The simulator follows c10d: a call meets the other members' calls with the same number in the same group; calls of
one operation and size complete wherever they were issued from, others block for good. Sends meet their receives.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from hangdoc.model.journal import Call, Journal, PointToPoint, ProcessGroup
from hangdoc.model.process import Frame, Process, ProcessExit, ProcessState, Stack, Thread
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
USER = "/home/me/train.py"
START = 1_700_000_000
OPERATIONS = ("all_reduce", "all_gather", "barrier", "broadcast", "reduce_scatter")

Group = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class Op:
    """One call of one rank. ``statement`` is what it means: calls of one statement belong together wherever the
    ranks issue them from. ``lines`` is its site, innermost first; ``peer`` makes it a send or a recv."""

    statement: int
    name: str
    group: Group
    lines: tuple[int, ...]
    size: int = 1
    peer: int = -1

    def meets(self, other: Op) -> bool:
        """Would the backend complete the two as one call?"""
        return (self.name, self.group) == (other.name, other.group) and (
            self.size == other.size or self.name == "barrier"
        )


@dataclass(frozen=True)
class Program:
    """What every rank does, healthy. ``instances[statement][rank]`` is the rank's call of a statement."""

    size: int
    families: tuple[tuple[Group, ...], ...]
    """Families of disjoint groups; the first one is the world alone."""
    calls: dict[int, tuple[Op, ...]]
    instances: dict[int, dict[int, Op]]


@dataclass(frozen=True)
class Fault:
    """What was done to the program, and to whom."""

    kind: str
    ranks: frozenset[int]
    calls: dict[int, tuple[Op, ...]]
    crashed: bool = False


@dataclass
class Issued:
    """A call under way."""

    op: Op
    sequence: int
    created_ns: int
    completed: bool = False


@dataclass
class Run:
    """Where everything stopped. ``state``: 'blocked', 'done' (ended), 'busy' (has not come to its next call)."""

    program: Program
    issued: dict[int, list[Issued]]
    state: dict[int, str]
    crashed: frozenset[int] = field(default=frozenset())


# --- programs ------------------------------------------------------------------------------------------------------


class _Writer:
    """Writes one random program."""

    def __init__(self, rng: random.Random, size: int, *, point_to_point: bool, joins: bool) -> None:
        self.rng, self.size, self.point_to_point = rng, size, point_to_point
        self.weights = (8, 3, 2, 4, 1 if joins else 0, 1)
        self.families = _families(rng, size)
        self.instances: dict[int, dict[int, Op]] = {}
        self.line = 10

    def block(self, depth: int, length: int) -> list[object]:
        """Statements and loops: a statement is its number, a loop a pair (rounds, block), Join a triple."""
        found: list[object] = []
        for _ in range(length):
            kind = self.rng.choices(("call", "rooted", "helper", "loop", "join", "chain"), self.weights)[0]
            if kind == "loop" and depth < 2:
                found.append((self.rng.randint(2, 4), self.block(depth + 1, self.rng.randint(1, 3))))
            elif kind == "join":
                found.append(self.join())
            elif kind == "chain" and self.point_to_point:
                found += self.chain()
            elif kind == "helper":
                # One line of a helper, called from several places: only the whole stack tells them apart.
                line = self.new_line()
                found += [self.call((line, self.new_line())) for _ in range(self.rng.randint(1, 2))]
            else:
                found.append(self.call(None if kind == "rooted" else (self.new_line(),)))
        return found

    def new_line(self) -> int:
        """A line nobody uses yet."""
        self.line += 1
        return self.line

    def call(self, lines: tuple[int, ...] | None) -> int:
        """A collective of one family; without ``lines`` the first member issues it from a line of its own."""
        family = self.rng.choice((self.families[0], self.rng.choice(self.families)))
        name = self.rng.choice(("broadcast", "barrier") if lines is None else OPERATIONS)
        size = self.rng.randint(1, 3)
        mine, others = (self.new_line(),), (self.new_line(),)
        return self.add(
            {
                rank: Op(0, name, group, lines or (mine if rank == group[1][0] else others), size)
                for group in family
                for rank in group[1]
            }
        )

    def add(self, ops: dict[int, Op]) -> int:
        """Number a statement."""
        number = len(self.instances) + 1
        self.instances[number] = {rank: replace(op, statement=number) for rank, op in ops.items()}
        return number

    def join(self) -> tuple[int, int, dict[int, int]]:
        """Uneven inputs under Join: ranks that are through shadow the others' calls from another line."""
        mine, shadow = (self.new_line(),), (self.new_line(),)
        (world,) = self.families[0]
        rounds = self.rng.randint(2, 4)
        own = {rank: self.rng.randint(1, rounds) for rank in range(self.size)}
        own[self.rng.randrange(self.size)] = rounds
        number = self.add({rank: Op(0, "all_reduce", world, mine) for rank in world[1]})
        self.add({rank: Op(0, "all_reduce", world, shadow) for rank in world[1]})
        return number, rounds, own

    def chain(self) -> list[int]:
        """A pipeline: every rank receives from the one before and sends to the next."""
        (world,) = self.families[0]
        receives, sends = (self.new_line(),), (self.new_line(),)
        found = []
        for rank in range(self.size - 1):
            found.append(
                self.add(
                    {
                        rank: Op(0, "send", world, sends, peer=rank + 1),
                        rank + 1: Op(0, "recv", world, receives, peer=rank),
                    }
                )
            )
        return found

    def unroll(self, block: list[object], rank: int) -> list[Op]:
        """What one rank does."""
        found: list[Op] = []
        for item in block:
            if isinstance(item, int):
                found += [self.instances[item][rank]] if rank in self.instances[item] else []
            elif len(item) == 2:  # type: ignore[arg-type]
                for _ in range(item[0]):  # type: ignore[index]
                    found += self.unroll(item[1], rank)  # type: ignore[index]
            else:
                number, rounds, own = item  # type: ignore[misc]
                shadow = replace(self.instances[number + 1][rank], statement=number)
                found += [self.instances[number][rank] if i < own[rank] else shadow for i in range(rounds)]
        return found


def _families(rng: random.Random, size: int) -> tuple[tuple[Group, ...], ...]:
    ranks = tuple(range(size))
    families = [(("0", ranks),)]
    if size >= 4 and size % 2 == 0 and rng.random() < 0.6:
        half = size // 2
        families.append((("1", ranks[:half]), ("2", ranks[half:])))
        # Groups of one name with different members: made with use_local_synchronization.
        names = ("3", "3") if rng.random() < 0.3 else ("3", "4")
        families.append(((names[0], ranks[::2]), (names[1], ranks[1::2])))
    if size >= 3 and rng.random() < 0.3:
        families.append((("5", ranks[1:]),))
    return tuple(families)


def write_program(
    rng: random.Random, *, sizes: tuple[int, int] = (2, 8), point_to_point: bool = False, joins: bool = True
) -> Program:
    """A random healthy program: calls in groups, loops, helpers, rooted calls, Join, pipelines."""
    size = rng.randint(*sizes)
    writer = _Writer(rng, size, point_to_point=point_to_point, joins=joins)
    epochs = rng.randint(1, 4)
    block = [(epochs, writer.block(1, rng.randint(2, 6)))]
    calls = {rank: tuple(writer.unroll(block, rank)) for rank in range(size)}
    return Program(size, writer.families, calls, writer.instances)


# --- faults --------------------------------------------------------------------------------------------------------


def break_program(rng: random.Random, program: Program, kinds: tuple[str, ...]) -> Fault | None:
    """One fault on one rank. None where the kind drawn has no place in this program."""
    kind = rng.choice(kinds)
    rank = rng.randrange(program.size)
    calls = list(program.calls[rank])
    if len(calls) < 2:
        return None
    at = rng.randrange(len(calls))
    if kind == "skip":
        places = [i for i, op in enumerate(calls) if op.peer < 0]
        if not places:
            return None
        del calls[rng.choice(places)]
    elif kind == "extra":
        calls.insert(at, _extra(rng, program, rank))
    elif kind == "again":
        if calls[at].peer >= 0:
            return None
        calls.insert(at, calls[at])
    elif kind == "always":
        # The extra call stands in the loop, and is issued in every round of it from some point on.
        extra, anchor = _extra(rng, program, rank), calls[at].statement
        calls[at:] = [each for op in calls[at:] for each in ((extra, op) if op.statement == anchor else (op,))]
    elif kind == "swap":
        places = [i for i in range(len(calls) - 1) if calls[i].group != calls[i + 1].group]
        if not places:
            return None
        i = rng.choice(places)
        calls[i], calls[i + 1] = calls[i + 1], calls[i]
    elif kind == "replace":
        op = calls[at]
        if op.peer >= 0:
            return None
        other = rng.choice([name for name in OPERATIONS if name != op.name])
        calls[at] = replace(op, name=other, statement=op.statement + 2000)
    elif kind == "argument":
        op = calls[at]
        if op.name not in ("all_reduce", "broadcast", "reduce_scatter"):
            return None
        calls[at] = replace(op, size=op.size + 10, statement=op.statement + 2000)
    elif kind in ("exit", "crash"):
        del calls[at:]
    elif kind == "partner":
        places = [i for i, op in enumerate(calls) if op.peer >= 0]
        if not places:
            return None
        del calls[rng.choice(places)]
    return Fault(kind, frozenset({rank}), {**program.calls, rank: tuple(calls)}, kind == "crash")


def break_together(rng: random.Random, program: Program) -> Fault | None:
    """One fault that several ranks have in common: all of them skip a call of the world, or issue one more there."""
    ranks = frozenset(rng.sample(range(program.size), rng.randint(1, program.size - 1)))
    world = [i for i, op in enumerate(program.calls[min(ranks)]) if op.peer < 0 and len(op.group[1]) == program.size]
    if not world:
        return None
    anchor = program.calls[min(ranks)][rng.choice(world)].statement
    extra = replace(_extra(rng, program, min(ranks)), group=program.families[0][0]) if rng.random() < 0.5 else None
    broken = dict(program.calls)
    for rank in ranks:
        calls = list(program.calls[rank])
        at = next(i for i, op in enumerate(calls) if op.statement == anchor)
        calls[at : at + 1] = [extra, calls[at]] if extra else []
        broken[rank] = tuple(calls)
    return Fault("together", ranks, broken)


def _extra(rng: random.Random, program: Program, rank: int) -> Op:
    groups = [g for family in program.families for g in family if rank in g[1]]
    return Op(1000, rng.choice(OPERATIONS), rng.choice(groups), (900,), rng.randint(1, 3))


# --- execution -----------------------------------------------------------------------------------------------------


def run(
    rng: random.Random, program: Program, calls: dict[int, tuple[Op, ...]], busy: dict[int, int] | None = None
) -> Run:
    """Execute until nothing moves. ``busy``: these ranks compute after that many calls and issue no more."""
    busy = busy or {}
    result = Run(program, {rank: [] for rank in calls}, {})
    counts: dict[tuple[int, Group], int] = {}
    slots: dict[tuple[Group, int], dict[int, Issued]] = {}
    posts: dict[tuple[int, int], list[tuple[str, int, Issued]]] = {}
    ready = list(calls)
    now = START * 10**9
    while ready:
        rank = ready.pop(rng.randrange(len(ready)))
        done = len(result.issued[rank])
        if done >= busy.get(rank, len(calls[rank])):
            result.state[rank] = "busy" if rank in busy else "done"
            continue
        op = calls[rank][done]
        now += rng.randint(1, 2_000_000)
        issued = Issued(op, 0, now)
        result.issued[rank].append(issued)
        result.state[rank] = "blocked"
        if op.peer >= 0:
            ready += _post(posts, rank, issued)
            continue
        counts[rank, op.group] = issued.sequence = counts.get((rank, op.group), 0) + 1
        slot = slots.setdefault((op.group, issued.sequence), {})
        slot[rank] = issued
        if set(slot) == set(op.group[1]) and all(op.meets(other.op) for other in slot.values()):
            for other in slot.values():
                other.completed = True
            ready += list(slot)
    return result


def _post(posts: dict[tuple[int, int], list[tuple[str, int, Issued]]], rank: int, issued: Issued) -> list[int]:
    """Post a send or recv; the ranks set free by it."""
    op = issued.op
    pair = (rank, op.peer) if op.name == "send" else (op.peer, rank)
    queue = posts.setdefault(pair, [])
    partner = next((entry for entry in queue if entry[0] != op.name), None)
    if partner is None:
        queue.append((op.name, rank, issued))
        return []
    queue.remove(partner)
    issued.completed = partner[2].completed = True
    return [rank, partner[1]]


# --- snapshots -----------------------------------------------------------------------------------------------------


def stack_of(op: Op) -> Stack:
    """What the recorder and py-spy would show of the call."""
    user = tuple(Frame(USER, line, "train") for line in op.lines)
    return (Frame(C10D, 3000, op.name), *user, Frame(USER, 5, "<module>"))


def journal_of(run: Run, rank: int, ring: int | None = None) -> Journal:
    """The rank's flight recorder. ``ring``: how many collectives it remembers."""
    stacks: dict[Stack, int] = {}
    calls: list[Call] = []
    points: list[PointToPoint] = []
    operations: dict[Group, int] = {}
    for issued in run.issued[rank]:
        op = issued.op
        stack = stacks.setdefault(stack_of(op), len(stacks))
        operations[op.group] = op_id = operations.get(op.group, 0) + 1
        if op.peer >= 0:
            points.append(
                PointToPoint(op.group[0], op_id, op.name, op.peer, 0, stack, issued.created_ns, issued.completed)
            )
            continue
        sizes = () if op.name == "barrier" else ((op.size,),)
        calls.append(
            Call(op.group[0], issued.sequence, op_id, op.name, stack, sizes, ("Float",) * len(sizes),
                 issued.created_ns, issued.completed, thread_name="MainThread")
        )  # fmt: skip
    groups = tuple(
        ProcessGroup(name, members, "default_pg" if name == "0" else "undefined", "cpu:gloo")
        for family in run.program.families
        for name, members in family
        if rank in members
    )
    return Journal("probe", groups, tuple(calls[-ring:] if ring else calls), tuple(points), stacks=tuple(stacks))


def snapshot(run: Run, *, ring: int | None = None, blind: frozenset[int] = frozenset()) -> JobSnapshot:
    """What ``watch`` would have saved of the job. ``blind``: ranks whose journal could not be read."""
    now = float(START + 60)
    ranks = []
    for rank, state in sorted(run.state.items()):
        journal = None if rank in blind else journal_of(run, rank, ring)
        pid = 1000 + rank
        if state == "done":
            end = ProcessExit(now - 30, None, 9) if rank in run.crashed else ProcessExit(now - 30, 0)
            ranks.append(
                RankSnapshot(rank, "node", "probe", exit=end, journal=journal, process=Process(pid, 1, "rank"))
            )
            continue
        ranks.append(
            RankSnapshot(rank, "node", "probe", run.program.size, process=_process(run, rank, now), journal=journal)
        )
    return JobSnapshot(
        taken=now,
        mode="watch",
        stalled_for=30.0,
        stall_after=30.0,
        world_size=run.program.size,
        ranks=tuple(ranks),
    )


def _process(run: Run, rank: int, now: float) -> Process:
    busy = run.state[rank] == "busy"
    if busy:
        frames: Stack = (Frame(USER, 7, "compute"), Frame(USER, 5, "<module>"))
    else:
        frames = stack_of(run.issued[rank][-1].op)
    looks = [
        ProcessState(
            now - 1 + i,
            "R" if busy else "S",
            cpu=10.0 + i * busy,
            threads=(
                Thread(1000 + rank, "MainThread", "R" if busy else "S", None if busy else "futex_do_wait",
                       "running" if busy else "202", 10.0 + i * busy, active=busy, owns_gil=busy, frames=frames),
            ),
        )
        for i in range(2)
    ]  # fmt: skip
    return Process(1000 + rank, 1, "rank", "python", looks=tuple(looks))
