"""The machine: ranks whose CPU runs ahead of their GPU, and communicators that are streams.

Written from what CUDA, NCCL and ``ProcessGroupNCCL`` do (torch 2.13), and from nothing that a reader of dumps assumes:

- A rank is a list of steps. Its CPU issues kernels and goes on; it stops only where it synchronizes, where a process
  outside holds it up, where its launch queue is full, or where a communicator is made.
- A kernel starts once it is issued and everything before it, in its stream and by events, has ended. Each communicator
  has one stream per rank; a collective's stream first waits for the compute stream, and a synchronous call makes the
  compute stream wait for the collective.
- A collective ends when all members have started it with the same operation and as many bytes; else never, and its
  stream holds what is behind it. Sends meet receives, first in first out for each pair.
- The first call of a communicator makes it: the CPU of every member waits for the others there, before the flight
  recorder hears of the call.

Nothing here has a notion of now: each kernel has the times of its issue, start and end (None: never). What a dump of
any moment shows follows from these, so one run serves dumps of different moments.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

Shape = tuple[int, ...]
FrameSpec = tuple[str, int, str]
"""File, line, function."""

BYTES = {"Float": 4, "BFloat16": 2, "Half": 2, "Long": 8, "Byte": 1, "Int": 4, "Double": 8}
AUTOGRAD = "pt_autograd_0"
_POLL = 0.1
"""How often NCCL's watchdog looks for what has ended, in seconds."""


@dataclass(frozen=True)
class Group:
    """A process group. ``members`` are global ranks."""

    name: str
    desc: str
    members: tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """A collective, a send, a receive, or a coalesced group of them (``parts``)."""

    op: str
    """As NCCL's process group records it: 'all_reduce', '_all_gather_base', 'send' …"""
    group: Group
    inputs: tuple[Shape, ...] = ()
    outputs: tuple[Shape, ...] = ()
    dtype: str = "Float"
    frames: tuple[FrameSpec, ...] = ()
    thread: str = "python"
    """The autograd engine's, 'pt_autograd_0', issues calls while the main thread waits in backward()."""
    waits: bool = True
    """The compute stream waits for it (async_op=False)."""
    seconds: float = 0.002
    peer: int = -1
    """Of a send or a receive: the global rank."""
    parts: tuple[Call, ...] = ()
    uneven: bool = False
    """Members give different sizes, rightly (all_to_all)."""
    root: int = 0
    """Of a broadcast or a reduction. The flight recorder does not keep it."""
    stuck: bool = False
    """Its kernel never ends, though all members started it."""
    site: str = ""
    """The statement it comes from: the same on all ranks."""
    iteration: int = -1

    @property
    def is_p2p(self) -> bool:
        return self.op in {"send", "recv"} or any(part.is_p2p for part in self.parts)

    @property
    def size(self) -> int:
        """Bytes that the kernel moves."""
        return sum(math.prod(shape) for shape in self.inputs) * BYTES.get(self.dtype, 4)

    @property
    def autograd(self) -> bool:
        return self.thread == AUTOGRAD

    @property
    def kernel(self) -> tuple[object, ...]:
        """What all members' kernels have to agree on."""
        if self.parts:
            return (self.op, tuple(part.kernel for part in self.parts))
        op = "all_reduce" if self.op == "all_reduce_barrier" else self.op
        return (op,) if self.uneven else (op, self.size, self.root)


@dataclass(frozen=True)
class Compute:
    """Kernels on the compute stream."""

    seconds: float
    stuck: bool = False


@dataclass(frozen=True)
class Host:
    """The CPU is busy, or waits for something outside (inf: for ever)."""

    seconds: float


@dataclass(frozen=True)
class Synchronize:
    """The CPU waits for the compute stream: ``.item()``, ``synchronize()``."""


@dataclass(frozen=True)
class Join:
    """The compute stream waits for all calls that it has not waited for yet: the end of backward()."""


@dataclass(frozen=True)
class Die:
    """The process is gone, and leaves no dump."""


Step = Call | Compute | Host | Synchronize | Join | Die


@dataclass(eq=False)
class Kernel:
    """One kernel of one rank."""

    rank: int
    issued: float
    seconds: float
    call: Call | None = None
    stuck: bool = False
    started: float | None = None
    ended: float | None = None
    missing: int = 0
    next: list[Kernel | _Cpu] = field(default_factory=list)
    number: int = 0
    """Of a collective: in its communicator."""
    unmet: int = 0
    """Parts of a batch that have no counterpart yet."""
    ready: float = 0.0


@dataclass(eq=False)
class Entry:
    """What the flight recorder keeps of a call. Without a kernel it stays scheduled for ever."""

    record_id: int
    pg_id: int
    group: Group
    collective_seq: int
    p2p_seq: int
    op_id: int
    name: str
    call: Call
    created: float
    is_p2p: bool
    kernel: Kernel | None


@dataclass
class Status:
    """``pg_status`` of one group at one moment."""

    enqueued: int = -1
    started: int = -1
    completed: int = -1


@dataclass
class Seen:
    """An entry as a dump of one moment shows it."""

    entry: Entry
    state: str
    started: float | None
    completed: float | None
    retired: bool
    duration_ms: float | None


@dataclass(eq=False)
class _Cpu:
    rank: int
    steps: list[Step]
    at: int = 0
    clock: float = 0.0
    missing: int = 0
    queued: bool = False
    gone: float | None = None
    kernels: list[Kernel] = field(default_factory=list)
    tails: dict[str, list[Kernel]] = field(default_factory=dict)
    unjoined: list[Kernel] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    counters: dict[str, list[int]] = field(default_factory=dict)
    numbered: dict[str, int] = field(default_factory=dict)


class Machine:
    """Runs the programs until nothing moves.

    ``eager``: communicators exist from the start, and unbatched sends and receives share the group's. ``depth``: how
    many kernels a rank's CPU may be ahead; ``pace``: everything takes so much longer. ``batch_bumps_collective``: until
    torch 2.5 a batch of sends and receives took a number of the collectives, on the ranks that took part.
    ``slow_path``: the parts of an uneven all_gather are recorded (schema 2.7 and later). ``short_ends``: where members'
    sizes differ, the member with the least data ends its kernel and goes on.
    """

    def __init__(
        self,
        groups: list[Group],
        programs: dict[int, list[Step]],
        *,
        eager: bool = False,
        depth: int = 100,
        pace: float = 1.0,
        batch_bumps_collective: bool = False,
        slow_path: bool = True,
        short_ends: bool = False,
    ) -> None:
        self.groups = groups
        self.eager, self.depth, self.pace = eager, depth, pace
        self._bumps, self._slow_path, self._short_ends = batch_bumps_collective, slow_path, short_ends
        self.cpus = {rank: _Cpu(rank, list(steps)) for rank, steps in programs.items()}
        self._runnable: deque[_Cpu] = deque(self.cpus.values())
        self._meetings: dict[tuple[str, int], dict[int, Kernel]] = {}
        self._poisoned: set[str] = set()
        self._channels: dict[tuple[str, int, int, str], deque[tuple[Kernel, int]]] = {}
        self._making: dict[str, dict[int, float]] = {}
        self._made: dict[str, float] = {}

    def run(self) -> Machine:
        """To the end, or to the hang."""
        while self._runnable:
            cpu = self._runnable.popleft()
            cpu.queued = False
            self._advance(cpu)
        return self

    @property
    def hung(self) -> bool:
        """Did a rank's program, or a kernel, not get to its end?"""
        return any(
            cpu.gone is None and (cpu.at < len(cpu.steps) or any(kernel.ended is None for kernel in cpu.kernels))
            for cpu in self.cpus.values()
        )

    @property
    def last_move(self) -> float:
        """When the last thing happened."""
        clocks = [cpu.clock for cpu in self.cpus.values() if math.isfinite(cpu.clock)]
        ends = [k.ended or k.started or k.issued for cpu in self.cpus.values() for k in cpu.kernels]
        return max(clocks + ends, default=0.0)

    def pending(self) -> Iterator[Entry]:
        """Calls that never end."""
        for cpu in self.cpus.values():
            if cpu.gone is None:
                yield from (entry for entry in cpu.entries if entry.kernel and entry.kernel.ended is None)

    def dump(self, rank: int, moment: float, *, timing: bool) -> tuple[list[Seen], dict[int, Status]]:
        """Entries and ``pg_status`` of ``rank`` at ``moment``. Without ``timing`` no start is ever recorded."""
        seen, status = [], {}
        for entry in self.cpus[rank].entries:
            if entry.created > moment:
                break
            found = _look(entry, moment, timing=timing)
            seen.append(found)
            of_group = status.setdefault(entry.pg_id, Status())
            if entry.kernel is None:
                continue
            number = entry.p2p_seq if entry.is_p2p else entry.collective_seq
            of_group.enqueued = number
            if timing and found.started is not None:
                of_group.started = number
            if found.retired:
                of_group.completed = number
        return seen, status

    def used_groups(self, rank: int, moment: float) -> list[Group]:
        """Groups with a communicator on ``rank``."""
        names = {entry.group.name for entry in self.cpus[rank].entries if entry.created <= moment}
        return [g for g in self.groups if g.name in names or (self.eager and rank in g.members)]

    # --- the CPU ---------------------------------------------------------------------------------------------------

    def _advance(self, cpu: _Cpu) -> None:
        while cpu.at < len(cpu.steps) and cpu.gone is None:
            if not self._step(cpu, cpu.steps[cpu.at]):
                return
            cpu.at += 1

    def _step(self, cpu: _Cpu, step: Step) -> bool:
        """Take it, or park: False."""
        if isinstance(step, Host):
            if math.isinf(step.seconds):
                return False
            cpu.clock += step.seconds * self.pace
        elif isinstance(step, Die):
            cpu.gone = cpu.clock
        elif isinstance(step, Join):
            tail = cpu.tails.setdefault("compute", [])
            tail.extend(cpu.unjoined)
            cpu.unjoined = []
        elif isinstance(step, Synchronize):
            return self._wait_for(cpu, cpu.tails.get("compute", []))
        else:
            full = cpu.kernels[-self.depth :][:1] if len(cpu.kernels) >= self.depth else []
            if not self._wait_for(cpu, full):
                return False
            if isinstance(step, Compute):
                cpu.clock += 0.0002
                kernel = Kernel(cpu.rank, cpu.clock, step.seconds * self.pace, stuck=step.stuck)
                self._issue(cpu, kernel, ["compute"])
                cpu.tails["compute"] = [kernel]
            else:
                return self._call(cpu, step)
        return True

    def _wait_for(self, cpu: _Cpu, kernels: list[Kernel]) -> bool:
        open_ = [kernel for kernel in kernels if kernel.ended is None]
        if open_:
            cpu.missing = len(open_)
            for kernel in open_:
                kernel.next.append(cpu)
            return False
        cpu.clock = max([cpu.clock, *(kernel.ended or 0.0 for kernel in kernels)])
        return True

    def _call(self, cpu: _Cpu, call: Call) -> bool:
        unbatched = call.is_p2p and not call.parts and not self.eager
        comm, members = call.group.name, call.group.members
        if unbatched:
            members = tuple(sorted((cpu.rank, call.peer)))
            comm = f"{comm}/{members}"
        if not self._has(cpu, comm, members):
            return False
        cpu.clock += 0.00005
        kernel = Kernel(cpu.rank, cpu.clock, call.seconds * self.pace, call, call.stuck)
        self._record(cpu, call, kernel)
        if call.is_p2p:
            parts = call.parts or (call,)
            kernel.unmet = len(parts)
        else:
            kernel.number = cpu.numbered[comm] = cpu.numbered.get(comm, 0) + 1
        self._issue(cpu, kernel, [comm, "compute"])
        cpu.tails[comm] = [kernel]
        if call.waits:
            cpu.tails["compute"] = [kernel]
        else:
            cpu.unjoined.append(kernel)
        return True

    def _has(self, cpu: _Cpu, comm: str, members: tuple[int, ...]) -> bool:
        """Is the communicator there? If not, wait for the others to make it."""
        if self.eager and "/" not in comm:
            return True
        if comm not in self._made:
            waiting = self._making.setdefault(comm, {})
            waiting[cpu.rank] = cpu.clock
            if len(waiting) < len(members):
                return False
            self._made[comm] = max(waiting.values()) + 0.3
            for rank in members:
                if rank != cpu.rank:
                    self._wake(self.cpus[rank])
        if cpu.rank in self._making.get(comm, {}):
            del self._making[comm][cpu.rank]
            cpu.clock = max(cpu.clock, self._made[comm])
        return True

    def _wake(self, cpu: _Cpu) -> None:
        if not cpu.queued:
            cpu.queued = True
            self._runnable.append(cpu)

    # --- the flight recorder ---------------------------------------------------------------------------------------

    def _record(self, cpu: _Cpu, call: Call, kernel: Kernel) -> None:
        seq, p2p, op_id = cpu.counters.setdefault(call.group.name, [0, 0, 0])
        if call.is_p2p and not (call.parts and self._bumps):
            p2p += 1
        else:
            seq += 1
        for part in call.parts:
            op_id += 1
            if call.is_p2p or self._slow_path:
                self._add(cpu, part, (seq, p2p, op_id), call.is_p2p, None)
        if not call.parts:
            op_id += 1
        is_p2p = call.is_p2p and not (call.parts and self._bumps)
        self._add(cpu, call, (seq, p2p, op_id), is_p2p, kernel)
        cpu.counters[call.group.name] = [seq, p2p, op_id]

    def _add(self, cpu: _Cpu, call: Call, numbers: tuple[int, int, int], is_p2p: bool, kernel: Kernel | None) -> None:
        mine = [group for group in self.groups if cpu.rank in group.members]
        name = call.op if self._slow_path or not call.parts else "coalesced"
        if call.op in {"send", "recv"}:
            me, peer = call.group.members.index(cpu.rank), call.group.members.index(call.peer)
            name = f"{call.op} {me}{'->' if call.op == 'send' else '<-'}{peer}"
        cpu.entries.append(
            Entry(len(cpu.entries), mine.index(call.group), call.group, *numbers, name, call, cpu.clock, is_p2p, kernel)
        )

    # --- the GPU ---------------------------------------------------------------------------------------------------

    def _issue(self, cpu: _Cpu, kernel: Kernel, streams: list[str]) -> None:
        cpu.kernels.append(kernel)
        for stream in streams:
            for before in cpu.tails.get(stream, []):
                if before.ended is None:
                    kernel.missing += 1
                    before.next.append(kernel)
                else:
                    kernel.ready = max(kernel.ready, before.ended)
        if not kernel.missing:
            self._start([kernel])

    def _start(self, kernels: list[Kernel]) -> None:
        """Start kernels, end what can end, and start what waited for it."""
        todo = deque(kernels)
        while todo:
            kernel = todo.popleft()
            kernel.started = max(kernel.issued, kernel.ready)
            for ended, moment in self._ends(kernel):
                ended.ended = moment
                for waiter in ended.next:
                    waiter.missing -= 1
                    if isinstance(waiter, _Cpu):
                        if not waiter.missing:
                            self._wake(waiter)
                        continue
                    waiter.ready = max(waiter.ready, moment)
                    if not waiter.missing:
                        todo.append(waiter)

    def _ends(self, kernel: Kernel) -> list[tuple[Kernel, float]]:
        """The kernels that end because this one started, and when."""
        started, call = kernel.started or 0.0, kernel.call
        if kernel.stuck and call is None:
            return []
        if call is None:
            return [(kernel, started + kernel.seconds)]
        if call.is_p2p:
            return self._message(kernel, call)
        comm = call.group.name
        met = self._meetings.setdefault((comm, kernel.number), {})
        met[kernel.rank] = kernel
        if len(met) < len(call.group.members) or comm in self._poisoned:
            return []
        together = list(met.values())
        moment = max(k.started or 0.0 for k in together) + max(k.seconds for k in together)
        if len({k.call.kernel for k in together if k.call}) == 1 and not any(k.stuck for k in together):
            return [(k, moment) for k in together]
        self._poisoned.add(comm)  # what is behind reads the data of others, or nothing
        sizes = {k.rank: k.call.size for k in together if k.call}
        least = [rank for rank, size in sizes.items() if size == min(sizes.values())]
        ops = {k.call.kernel[0] for k in together if k.call}
        if self._short_ends and len(ops) == 1 and len(least) == 1 and len(sizes) > 1 and len(set(sizes.values())) > 1:
            return [(met[least[0]], moment)]
        return []

    def _message(self, kernel: Kernel, call: Call) -> list[tuple[Kernel, float]]:
        ended = []
        for part in call.parts or (call,):
            source, target = (kernel.rank, part.peer) if part.op == "send" else (part.peer, kernel.rank)
            other = "recv" if part.op == "send" else "send"
            comm = call.group.name
            waiting = self._channels.setdefault((comm, source, target, other), deque())
            if not waiting:
                mine = self._channels.setdefault((comm, source, target, part.op), deque())
                mine.append((kernel, part.size))
                continue
            partner, size = waiting.popleft()
            if size != part.size:
                continue  # neither ends
            moment = max(kernel.started or 0.0, partner.started or 0.0) + kernel.seconds
            for each in (kernel, partner):
                each.unmet -= 1
                each.ready = max(each.ready, moment)
                if not each.unmet:
                    ended.append((each, each.ready))
        return ended


def _look(entry: Entry, moment: float, *, timing: bool) -> Seen:
    kernel = entry.kernel
    if kernel is None:
        return Seen(entry, "scheduled", None, None, False, None)
    if kernel.ended is not None and kernel.ended <= moment:
        # The watchdog asks each so often, and the recorder asks once more when it dumps.
        poll = math.ceil(kernel.ended / _POLL) * _POLL
        retired = poll <= moment
        found = poll if retired else moment
        duration = (kernel.ended - (kernel.started or kernel.ended)) * 1000 if timing and retired else None
        return Seen(entry, "completed", found if timing else None, found, retired, duration)
    if timing and kernel.started is not None and kernel.started <= moment:
        return Seen(entry, "started", moment, None, False, None)
    return Seen(entry, "scheduled", None, None, False, None)
