"""What a culprit waits for in turn: a child, a lock's holder or a pipe's other end, followed to the last of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import PurePosixPath

from hangdoc.diagnosis.bounds import DEEPEST, LISTED
from hangdoc.diagnosis.causes.phrases import line_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import below_user
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.locks import held, wanted
from hangdoc.diagnosis.state.activity import python_op
from hangdoc.diagnosis.state.deadlock import is_idle_worker, is_pool_worker, nobody_wakes
from hangdoc.diagnosis.state.process import (
    Wait,
    at_rest,
    blocking_thread,
    descendants,
    is_moving,
    is_shared_wait,
    kind_mark,
    mark_with_words,
)
from hangdoc.model.diagnosis import CulpritProcess
from hangdoc.model.kinds import ActivityKind, WaitReason
from hangdoc.model.message import Message, Ranks
from hangdoc.model.process import OpenFile, Process, Stack, Thread
from hangdoc.model.snapshot import RankSnapshot
from hangdoc.model.wording import reads_as_state


class Fault(Enum):
    """What is wrong at one step of a chain, where it is known."""

    OWN_PIPE = auto()
    """A child waits on a pipe of which the rank itself holds the other end, and nobody else does."""
    FORKED_LOCK = auto()
    """A child waits for a lock that no thread of it holds: forked while another thread of its parent held it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step from a rank to what it waits for. ``text`` is a whole clause, ``process`` the one that is waited for."""

    text: Message
    process: Process | None = None
    fault: Fault | None = None


_OWN_PIPE = "of which the rank itself holds the other end, and nobody else does"
_FORKED = "which no thread of it holds: it was probably forked while another thread of its parent held it"
_FORKED_WITHOUT = (
    "for threads that it does not have: it was forked after its parent had started them (OpenMP's, for example)"
)
_FOLLOWED = frozenset(
    {
        ActivityKind.WAITING_FOR_CHILD,
        ActivityKind.WAITING_FOR_WORKER,
        ActivityKind.FILE_LOCK,
        ActivityKind.PIPE,
        ActivityKind.IO,
        ActivityKind.LOCK,
        ActivityKind.GIL_HELD,
        ActivityKind.SHUTTING_DOWN,
    }
)


def follow(case: Case, rank: int) -> list[Step]:
    """What the rank waits for, step by step: 'DataLoader worker 4712 is in recv on socket …'."""
    return list(_steps(case, rank))


def ends_at(case: Case, rank: int) -> CulpritProcess | None:
    """The child at which the chain ends, None where the rank itself is to blame, or something that is no child.

    Example: the rank waits for its DataLoader worker, which reads from a server that is silent → the worker. Where
    the worker reads from a pipe whose other end the rank holds, None.
    """
    last = None
    for step in _steps(case, rank):
        if step.fault is Fault.OWN_PIPE:
            return None
        last = step.process
    if last is None:
        return None
    role = last.role if last.role == "dataloader-worker" else "child"
    return CulpritProcess(rank, last.pid, case.ranks[rank].host, role, case.job.run_id)


def stack_of_child(case: Case, rank: int) -> Stack:
    """The stack of the last child that the rank's wait leads to, also of one that waits on a pipe of the rank's."""
    last = next((step.process for step in reversed(follow(case, rank)) if step.process is not None), None)
    return _stack(last) if last is not None else ()


def child_stacks(case: Case, rank: int) -> list[Stack]:
    """The stacks of the rank's children and their children, as far as they were seen."""
    process = case.ranks[rank].process
    return [stack for child in descendants(process) if (stack := _stack(child))] if process is not None else []


def _stack(process: Process) -> Stack:
    thread = blocking_thread(process)
    return thread.frames if thread is not None else ()


def _steps(case: Case, rank: int) -> Iterator[Step]:
    snapshot = case.ranks[rank]
    process, activity = snapshot.process, case.activities[rank]
    kind = activity.kind
    for _ in range(DEEPEST):
        if process is None or kind not in _FOLLOWED:
            return
        following = dead_child(process) or _next(process, kind)
        if following is None and kind == ActivityKind.IO:
            return  # a file, or a server that is no child
        if following is None:
            at_a_file = kind in (ActivityKind.FILE_LOCK, ActivityKind.PIPE)
            if at_a_file:
                yield from map(Step, _holders(case, process, snapshot.host))
            else:  # the chain stays in the process
                child = process if process is not snapshot.process else None
                yield from (Step(text, child) for text in _threads(process))
            return
        process = following
        kind, state = state_of(process)
        forked, own = _forked_with_a_lock(case, process), _of_rank(snapshot, process)
        fault = Fault.OWN_PIPE if own else Fault.FORKED_LOCK if forked else None
        yield Step([title_of(process), " ", forked or state, own], process, fault)


def dead_child(process: Process) -> Process | None:
    """The child that has ended while the process waits for a message of multiprocessing's, if there is one.

    Its pipe need not close: siblings that were forked after it hold its end as well. Where a living child may be the
    one that is waited for, None. Example: three workers behind pipes, of which the second crashed and the others wait
    for work → the second.
    """
    children = [child for child in process.children if child.role == "child"]
    dead = [child for child in children if state_of(child)[0] == ActivityKind.ZOMBIE]
    if not dead or not _waits_for_message(process):
        return None
    own = {_ends(file) for file in process.blocking_files}
    holders = {pid for file in process.blocking_files for pid in file.peers}
    living = [child for child in children if child not in dead and (not holders or child.pid in holders)]
    idle = [c for c in living if _waits_for_message(c) and not own & {_ends(file)[::-1] for file in c.blocking_files}]
    return dead[0] if len(idle) == len(living) else None


def _waits_for_message(process: Process) -> bool:
    """True if the main thread waits for a message of another process's, or for room for one."""
    main = process.last.main if process.last is not None and not is_moving(process) else None
    below = below_user(main.frames) if main is not None else ()
    return any(frame.file.endswith(names("process_channel_file")) for frame in below)


def _ends(file: OpenFile) -> tuple[str, str]:
    """('A', 'B') of 'socket:unix A to B'."""
    here, _, there = file.target.partition(" to ")
    return here.rpartition(" ")[2], there


def is_pool_idle(process: Process) -> bool:
    """True if all workers of the rank's pool of processes (multiprocessing.Pool) wait for work."""
    workers = [child for child in process.children if is_pool_worker(child)]
    return bool(workers) and all(map(is_idle_worker, workers))


def _forked_with_a_lock(case: Case, process: Process) -> Message:
    """'waits at load.py:3 for the lock `lock`, which no thread of it holds …', or for threads that a fork has not; ''
    where it does not wait so."""
    threads = [t for t in process.last.threads if t.frames] if process.last is not None else []
    frames = user_stack(threads[0].frames) if threads else ()
    locks = wanted(frames[0], case.sources) if frames else frozenset()
    # A library's threads, like the one that feeds a queue, do not hold the program's locks.
    others = [thread for thread in threads[1:] if user_stack(thread.frames)]
    alone = bool(threads) and not others and not is_shared_wait(threads[0]) and "futex" in (threads[0].wchan or "")
    if frames and not locks and nobody_wakes(process):
        return ["waits at ", line_of(frames[0]), f" in native code {_FORKED_WITHOUT}"]
    if not locks or not alone or any(name in locks for name, _ in held(threads[0].frames, case.sources)):
        return ""
    return ["waits at ", line_of(frames[0]), f" for the lock `{min(locks)}`, {_FORKED}"]


def _of_rank(snapshot: RankSnapshot, process: Process) -> str:
    """', of which the rank itself holds the other end …' of its child's pipe; '' where others hold the end, too."""
    own = snapshot.process.pid if snapshot.process is not None else 0
    held = any(f.target.startswith("pipe:") and f.peers == (own,) for f in process.blocking_files)
    return f", {_OWN_PIPE}" if held and own != process.pid else ""


def _next(process: Process, kind: str) -> Process | None:
    """The child that is waited for: the one that the system call names, else the one that does not move."""
    if kind not in (
        ActivityKind.WAITING_FOR_CHILD,
        ActivityKind.WAITING_FOR_WORKER,
        ActivityKind.PIPE,
        ActivityKind.IO,
    ) or _is_at_a_queue(process):
        return None
    named = {pid for file in process.blocking_files for pid in file.peers}
    workers = [c for c in process.children if c.role == "dataloader-worker" or "spawn_main" in "".join(c.argv)]
    children = [c for c in process.children if c.pid in named]
    if kind in (ActivityKind.PIPE, ActivityKind.IO):
        return next(iter(children), None)
    children = children or (workers if kind == ActivityKind.WAITING_FOR_WORKER else list(process.children))
    children = [c for c in children if not is_idle_worker(c)] or children  # who waits for work keeps nobody waiting
    still = [c for c in children if not is_moving(c)]
    return next(iter(still or children), None)


def state_of(process: Process) -> tuple[ActivityKind, Message]:
    """(kind, clause) of what a process that is no rank does: 'is stopped (state T)'."""
    last = process.last
    if last is None:
        return ActivityKind.NOT_VISIBLE, "could not be looked at"
    if last.state in "ZX":
        return ActivityKind.ZOMBIE, "has ended"
    if last.state in "Tt":
        return ActivityKind.STOPPED, f"is stopped (state {last.state})"
    if last.state == "D":
        return ActivityKind.UNINTERRUPTIBLE, "is in an uninterruptible wait (state D)"
    thread = blocking_thread(process)
    stack = thread.frames if thread else ()
    doing = at_rest(process, thread, stack)
    mark = kind_mark(stack)
    if mark is not None and mark.kind == ActivityKind.IN_COLLECTIVE:
        doing = Wait(mark.kind, f"in {python_op(stack) or 'a collective'}")
    frames = user_stack(stack)
    where = frames[0] if frames else (below_user(stack) or (None,))[0]
    return doing.kind, [f"is {doing.text}", [" at ", line_of(where)] if where is not None else ""]


def title_of(process: Process) -> str:
    """'child process 4711 (eval.py)'."""
    name = {"dataloader-worker": "DataLoader worker", "compiler": "compiler"}.get(process.role, "child process")
    script = next((PurePosixPath(a).name for a in process.argv[1:] if a.endswith((".py", ".sh"))), process.comm)
    return f"{name} {process.pid}" + (f" ({script})" if script and process.role == "child" else "")


def _holders(case: Case, process: Process, host: str) -> Sequence[Message]:
    """Clauses on who of ``host`` has the other end, or the lock; [] where nothing is known of it."""
    file = next(iter(process.blocking_files), None)
    if _is_at_a_queue(process):
        return []  # everybody who has the queue holds both ends of its pipe
    if file is None:
        return _lock_owners(case, process)
    here = {r: s.process for r, s in case.ranks.items() if s.process is not None and s.host == host}
    ranks = [rank for rank, of_rank in here.items() if of_rank.pid in file.peers]
    if ranks:
        return [[f"{file.target} is held by ", Ranks.of(ranks)]]
    if file.peers:
        return [f"{file.target} is held by process {', '.join(map(str, file.peers))}"]
    return [] if file.fd < 0 else [f"no other process holds the other end of {file.target}"]


def _is_at_a_queue(process: Process) -> bool:
    """True if the process waits on a queue between processes itself, and not for what fills one (a DataLoader's)."""
    main = process.last.main if process.last is not None else None
    decides = kind_mark(main.frames) if main is not None else None
    if main is None or decides is None or decides.kind != ActivityKind.PIPE:
        return False
    mark = mark_with_words(main.frames, ActivityKind.PIPE)
    return mark is not None and mark.reason == WaitReason.QUEUE


def _lock_owners(case: Case, process: Process) -> Sequence[Message]:
    """Clauses on the other ranks' file locks: a rank that polls for a lock does not show for which file."""
    owners = [(r, s.process) for r, s in case.ranks.items() if s.process is not None and s.process is not process]
    return [
        f"rank {rank} holds a lock on {', '.join(owner.locked_files)}" for rank, owner in owners if owner.locked_files
    ][:LISTED]


def _threads(process: Process) -> list[Message]:
    """Where the other threads are that run user code: one of them has what the rank waits for."""
    found: list[Message] = []
    for thread in threads_of(process):
        frames, mark = user_stack(thread.frames), kind_mark(thread.frames)
        wait = mark_with_words(thread.frames, mark.kind) if mark is not None and mark.kind is not None else None
        name, line = thread.name or str(thread.tid), line_of(frames[0])
        if wait is None:
            found.append([f"its thread `{name}` is at ", line])
        else:
            link = "" if reads_as_state(wait.words) else "in "
            found.append([f"its thread `{name}` is {link}{wait.words} (", line, ")"])
    return found


def threads_of(process: Process) -> list[Thread]:
    """Some of the threads beside the main thread that run code of the user's."""
    main = process.last.main if process.last else None
    threads = process.last.threads if process.last else ()
    return [thread for thread in threads if thread is not main and user_stack(thread.frames)][:LISTED]
