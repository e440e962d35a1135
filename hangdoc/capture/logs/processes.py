"""From the stacks of threads to ranks with processes, as a look at them would have shown: one look, without times.

What the tools do not say stays open: a thread's state is '' where nothing tells whether it ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hangdoc.model.frames import own_frames
from hangdoc.model.logged import LogStack
from hangdoc.model.process import Process, ProcessState, Stack, Thread
from hangdoc.model.snapshot import RankSnapshot, Unavailable

_TOOLS = ("py-spy", "pystack", "faulthandler", "gdb")
"""Whose Python frames count where several looked at one process: the first says most of each thread."""
_WORKER = ("torch/utils/data/_utils/worker.py", "_worker_loop")
_NO_RANKS = (
    "torch/distributed/elastic/agent/server/api.py",
    "torch/distributed/launcher/api.py",
    "torch/_inductor/compile_worker/__main__.py",
    "multiprocessing/resource_tracker.py",
    "multiprocessing/forkserver.py",
)
"""Files on the main threads of processes that are beside the ranks: torchrun's agent, helpers of multiprocessing."""
_MOST_RANKS = 1 << 15
"""Of a job; a larger number, in a heading that is none, is no rank. Chosen by hand."""
_MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class SeenRanks:
    """The ranks that the stacks show, and those that are missing among them; what there is to say of their numbers."""

    ranks: tuple[RankSnapshot, ...] = ()
    unavailable: tuple[Unavailable, ...] = ()
    world_size: int | None = None

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """The Python stacks of all threads, whose sources may be looked for."""
        processes = (rank.process for rank in self.ranks if rank.process is not None)
        return tuple(t.frames for p in processes for look in p.looks for t in look.threads if t.frames)


def ranks_of(stacks: Sequence[LogStack], at: float = 0.0, world_size: int | None = None) -> SeenRanks:
    """The ranks whose stacks these are, sorted. ``at``: Unix time at which they were taken, as far as is known.

    Of a process that was printed several times the last counts. Processes whose rank nothing says get the free numbers
    in the order of their pids, with the identity 'order' and a note, unless they are launchers or workers.
    ``world_size``: where something else than the stacks tells it.
    """
    by_process: dict[tuple[int | None, int, str, int], list[LogStack]] = {}
    for stack in stacks:
        by_process.setdefault(_key(stack), []).append(stack)
    by_rank: dict[int, list[tuple[Process, str]]] = {}
    unnumbered: list[tuple[Process, str]] = []
    for of_process in by_process.values():
        process = _process(of_process, at)
        rank, file = of_process[0].rank, of_process[0].place.file
        if rank is not None and 0 <= rank < _MOST_RANKS:
            by_rank.setdefault(rank, []).append((process, file))
        elif process.role == "rank":
            unnumbered.append((process, file))
    known: dict[int, Process] = {}
    twice: list[int] = []
    for rank, found in sorted(by_rank.items()):
        ranks = [process for process, _ in found if process.role == "rank"]
        if len(ranks) > 1 and len({file for _, file in found}) > 1:
            twice.append(rank)  # two files call themselves by one number: of two hosts, or two runs
            unnumbered += [each for each in found if each[0].role == "rank"]
        elif ranks:
            below = [child for child, _ in found if child is not ranks[0]]
            children = tuple(replace(each, role="child" if each.role == "rank" else each.role) for each in below)
            known[rank] = replace(ranks[0], children=children)
    size = world_size or max((stack.world_size for stack in stacks), default=0)
    size = size if size <= _MOST_RANKS else 0
    numbered = _numbered([process for process, _ in unnumbered], known)
    return _all_ranks(known, numbered, size, _notes(numbered, twice))


def _all_ranks(
    known: dict[int, Process], numbered: dict[int, Process], size: int, notes: tuple[Unavailable, ...]
) -> SeenRanks:
    everyone = {**known, **numbered}
    if not everyone:
        return SeenRanks(unavailable=notes)
    world = max(size, max(everyone) + 1)
    ranks = {rank: RankSnapshot(rank, "", "expected", world_size=size or None) for rank in range(world)}
    for rank, process in everyone.items():
        identity = "log" if rank in known else "order"
        ranks[rank] = RankSnapshot(rank, "", identity, world_size=size or None, process=process)
    return SeenRanks(tuple(ranks[rank] for rank in sorted(ranks)), notes, size or None)


def _key(stack: LogStack) -> tuple[int | None, int, str, int]:
    """What tells a process from the others: rank and pid; without a pid, where it was printed."""
    if stack.pid or stack.rank is not None:
        return stack.rank, stack.pid, "", 0
    return None, 0, stack.place.file, stack.dump


def _numbered(processes: list[Process], known: Iterable[int]) -> dict[int, Process]:
    taken = set(known)
    free = (number for number in range(len(taken) + len(processes)) if number not in taken)
    return dict(zip(free, sorted(processes, key=lambda process: process.pid), strict=False))


def _notes(numbered: dict[int, Process], twice: list[int]) -> tuple[Unavailable, ...]:
    if not numbered:
        return ()
    order = "of their pids" if all(process.pid for process in numbered.values()) else "in which they were given"
    first = [f"process {p.pid} is rank {rank}" for rank, p in list(numbered.items())[:_MOST_NAMED] if p.pid]
    names = f" ({', '.join(first)}{', …' if len(numbered) > len(first) else ''})" if first else ""
    why = "the stacks do not say which rank each process is"
    if twice:
        why = f"several processes call themselves rank {twice[0]}"
    remedy = "put the rank into the name of each file: rank0.txt, rank1.txt"
    return (Unavailable("ranks", f"{why}: they are numbered in the order {order}{names}", remedy),)


def _process(stacks: Sequence[LogStack], at: float) -> Process:
    """One process, from all that was printed of it."""
    tool = next(tool for tool in (*_TOOLS, stacks[0].place.kind) if any(s.place.kind == tool for s in stacks))
    last = next(stack for stack in reversed(stacks) if stack.place.kind == tool)
    looked = [s for s in stacks if (s.place.kind, s.place.file, s.dump) == (tool, last.place.file, last.dump)]
    threads = [_thread(each) for each in _joined(looked)]
    others = [stack for stack in stacks if stack.place.kind != tool and stack.native]
    threads = [_with_native(thread, others, first=at == 0) for at, thread in enumerate(threads)]
    pid = next((stack.pid for stack in (*looked, *stacks) if stack.pid), 0)
    main = threads[0].frames
    return Process(pid=pid, ppid=0, role=_role(main), looks=(ProcessState(at=at, state="", threads=tuple(threads)),))


def _role(main: Stack) -> str:
    """'dataloader-worker', 'child' (no rank either), else 'rank'."""
    if any(frame.file.endswith(_WORKER[0]) and frame.function.endswith(_WORKER[1]) for frame in main):
        return "dataloader-worker"
    return "child" if any(frame.file.endswith(_NO_RANKS) for frame in main) else "rank"


def _joined(stacks: Sequence[LogStack]) -> list[tuple[LogStack, Stack]]:
    """(a thread's stack, its native frames), the main thread first; an empty one for a main thread that was not
    printed among several."""
    found: list[tuple[LogStack, Stack]] = []
    native: dict[tuple[int, int], Stack] = {}
    for stack in stacks:
        if stack.native:
            native[stack.place.line, stack.tid] = stack.frames
    for stack in stacks:
        below = native.get((stack.place.line, stack.tid), ())
        if not stack.native:
            found.append((stack, below))
        elif not any(s.place.line == stack.place.line and s.tid == stack.tid and not s.native for s in stacks):
            found.append((replace(stack, frames=()), stack.frames))
    mains = [each for each in found if each[0].main] or (found if len(found) == 1 else [])
    if not mains:
        mains = [(replace(stacks[0], frames=(), thread="MainThread", tid=0, idle=None, gil=None), ())]
    return [mains[0], *(each for each in found if each is not mains[0])]


def _thread(seen: tuple[LogStack, Stack]) -> Thread:
    stack, native = seen
    state = {True: "S", False: "R", None: ""}[stack.idle]
    return Thread(
        tid=stack.tid,
        name=_name(stack),
        state=state,
        active=None if stack.idle is None else not stack.idle,
        owns_gil=stack.gil,
        frames=own_frames(stack.frames),
        native_frames=native,
    )


def _name(stack: LogStack) -> str:
    """The thread's name; of one that has none, as a thread that Python did not start, its number as it was printed."""
    if stack.thread and not stack.thread.startswith("Dummy-"):
        return stack.thread
    if stack.main:
        return "MainThread"
    return hex(stack.tid) if stack.place.kind == "faulthandler" else str(stack.tid)


def _with_native(thread: Thread, others: Sequence[LogStack], *, first: bool) -> Thread:
    """``thread`` with C's frames that another tool has printed of it; ``first``: it is the main thread."""
    if thread.native_frames:
        return thread
    found = [each for each in others if (each.tid and each.tid == thread.tid) or (first and each.main)]
    return replace(thread, native_frames=found[-1].frames) if found else thread
