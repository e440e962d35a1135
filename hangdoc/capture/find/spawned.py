"""Ranks that one Python process started by multiprocessing. Their stacks show them, not their environment.

``torch.multiprocessing.spawn`` (torch 1.8 to 2.13) keeps the rank in local ``i`` of its ``_wrap``. With plain
``multiprocessing.Process`` the rank is what the program passed: an integer argument of the function that all siblings
run, with the values 0 to n-1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hangdoc.capture.find.process_table import Entry, ProcessTable
from hangdoc.capture.read.stacks import PythonThread
from hangdoc.model.frames import is_library_file, own_frames
from hangdoc.model.process import Frame, Stack
from hangdoc.model.snapshot import Unavailable

_MAX_SIBLINGS = 256
"""Children of one parent whose stacks are read, at about 10 ms each (measured). Judgement."""
_RAY, _IDLE = "ray::", "ray::IDLE"
"""How Ray titles its workers, and one that has nothing to do (Ray 2.60)."""
_HELPERS = ("resource_tracker", "semaphore_tracker", "forkserver import main", "compile_worker", "_inductor")


@dataclass(frozen=True, slots=True)
class Spawned:
    """The ranks that ``parent`` started: pid to rank. ``by_torch``: through torch's own spawn, beyond doubt."""

    parent: int
    ranks: Mapping[int, int]
    by_torch: bool


def spawned_rank(stack: Stack) -> int | None:
    """The rank of a torch.multiprocessing.spawn process: local ``i`` of its ``_wrap``."""
    for frame in stack:
        if frame.file.endswith("torch/multiprocessing/spawn.py") and frame.function == "_wrap":
            for local in frame.locals:
                if local.name == "i" and local.value.isdigit():
                    return int(local.value)
    return None


def find_spawned(table: ProcessTable, parents: Iterable[int]) -> list[Spawned]:
    """For each of ``parents`` that started ranks by multiprocessing: which. Others are left out."""
    families = {parent: found for parent in parents if (found := siblings(table, parent))}
    # All at once: each answer takes about 10 ms.
    answers = table.stacks([pid for family in families.values() for pid in family])
    spawned = []
    for parent, family in families.items():
        mains = {pid: _main_stack(pid, answers[pid]) for pid in family}
        torch = {pid: rank for pid, stack in mains.items() if (rank := spawned_rank(stack)) is not None}
        ranks = torch or _by_argument(mains)
        if ranks and len(set(ranks.values())) == len(ranks):
            spawned.append(Spawned(parent, ranks, bool(torch)))
    return spawned


def siblings(table: ProcessTable, parent: int) -> list[int]:
    """Children of ``parent`` that may be ranks: living Python, neither a DataLoader's worker nor a helper."""
    if not table.is_python(parent):
        return []
    return [
        pid
        for pid in table.children.get(parent, ())[:_MAX_SIBLINGS]
        if (entry := table[pid]).alive
        and entry.comm != "pt_data_worker"
        and _by_multiprocessing(entry.argv, table[parent].argv)
        and table.is_python(pid)
        and table.has_torch(pid) is not False
    ]


def actors(table: ProcessTable, parent: int, known: Collection[int]) -> list[int]:
    """Ray's workers below ``parent`` that may be ranks beside ``known``: those of a class that a known one is of, those
    with torch, and those that have yet to say what they are.

    Example: beside `ray::Learner.join`, `ray::Learner.__init__` is one; `ray::IDLE` and `ray::DashboardAgent` are none.
    """
    classes = {_class_of(table[pid]) for pid in known if pid in table} - {""}
    if not classes:
        return []
    return [
        pid
        for pid in table.children.get(parent, ())[:_MAX_SIBLINGS]
        if pid not in known
        and (entry := table[pid]).alive
        and entry.argv[:1] != (_IDLE,)
        and table.is_python(pid)
        and (_class_of(entry) in {*classes, ""} or table.has_torch(pid) is not False)
    ]


def _class_of(worker: Entry) -> str:
    """'ray::Learner' of a worker with the title 'ray::Learner.join'; '' of any other process."""
    title = worker.argv[0] if worker.argv else ""
    return title.partition(".")[0] if title.startswith(_RAY) else ""


def unreaped(table: ProcessTable, parent: int) -> list[int]:
    """Children of ``parent`` that have ended and that it has not reaped."""
    return [pid for pid in table.children.get(parent, ()) if not table[pid].alive]


def _by_multiprocessing(argv: Sequence[str], parents: Sequence[str]) -> bool:
    """True for a child that multiprocessing started: forked, so with the command line of its parent (which may be the
    fork server), or spawned, with multiprocessing's own command line; and not one of its helpers."""
    if tuple(argv) == tuple(parents):
        return True
    helper = any(mark in word for word in argv[:6] for mark in _HELPERS)
    return not helper and any("multiprocessing." in word for word in argv[:6])


def _main_stack(pid: int, threads: tuple[PythonThread, ...] | Unavailable) -> Stack:
    if isinstance(threads, Unavailable):
        return ()
    main = next((thread for thread in threads if thread.name == "MainThread"), None)
    main = main or next((thread for thread in threads if thread.tid == pid), None)
    return own_frames(main.frames) if main is not None else ()


def _by_argument(stacks: Mapping[int, Stack]) -> dict[int, int]:
    """The ranks by an argument of the outermost user function that is the same in all processes, if one has the
    values 0 to n-1 over n >= 2 processes; a name with 'rank' in it goes first.

    ``train(rank=1, seed=7)`` in process 10 and ``train(rank=0, seed=7)`` in process 11 → {10: 1, 11: 0}.
    """
    targets = {pid: frame for pid, stack in stacks.items() if (frame := _target(stack)) is not None}
    functions = {(frame.file, frame.function) for frame in targets.values()}
    if len(targets) < 2 or len(targets) < len(stacks) or len(functions) != 1:
        return {}
    values = _whole_arguments(targets)
    fitting = [name for name, found in values.items() if sorted(found.values()) == list(range(len(targets)))]
    fitting.sort(key=lambda name: ("rank" not in name.lower(), name))
    return values[fitting[0]] if fitting else {}


def _whole_arguments(frames: Mapping[int, Frame]) -> dict[str, dict[int, int]]:
    """Name of an argument → pid → its value, for those that are whole numbers. ``frames``: by pid."""
    values: dict[str, dict[int, int]] = {}
    for pid, frame in frames.items():
        for local in frame.locals:
            if local.argument and local.value.isdigit() and len(local.value) < 7:
                values.setdefault(local.name, {})[pid] = int(local.value)
    return values


def _target(stack: Stack) -> Frame | None:
    return next((frame for frame in reversed(stack) if not is_library_file(frame.file)), None)
