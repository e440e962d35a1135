"""Build the model of one process from what was read of it: ``Process`` and ``RankSnapshot``."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hangdoc.capture.find.target import RankTarget
from hangdoc.capture.read import blocked_calls, sockets
from hangdoc.capture.read.branches import NOTHING_RECORDED
from hangdoc.capture.read.branches import Recorded as RecordedBranches
from hangdoc.capture.read.children import Subject
from hangdoc.capture.read.probe_client import ProbeDetails
from hangdoc.model.frames import own_frames
from hangdoc.model.journal import Journal
from hangdoc.model.process import OpenFile, Process, ProcessExit, ProcessState, Stack, Thread
from hangdoc.model.ran import RanCode
from hangdoc.model.snapshot import LogTail, RankSnapshot

_MOST_THREADS = 64
"""Of one process, whose system calls are looked at. Judgement."""

_HOOKS = "/hangdoc_probe_hooks.py"


@dataclass(frozen=True, slots=True)
class BlockingFiles:
    """By pid of this host the files that the process has locked, and those that its main thread names as locks; by
    thread id what the thread blocks on (the main thread's is the pid)."""

    blocked: Mapping[int, tuple[OpenFile, ...]]
    locked: Mapping[int, tuple[str, ...]]
    named: Mapping[int, tuple[OpenFile, ...]]
    code: Mapping[int, tuple[RanCode, ...]]
    """By pid what has run of the program."""
    branches: Mapping[int, RecordedBranches] = field(default_factory=dict)
    """By pid what its probe records."""


def blocking_files(states: Mapping[int, ProcessState], network: sockets.Sockets) -> dict[int, tuple[OpenFile, ...]]:
    """By thread id: what the main thread of each process, and every other thread that runs Python, blocks on, with the
    processes at the other ends."""
    found: dict[int, tuple[int, tuple[OpenFile, ...]]] = {}
    for pid, state in states.items():
        for thread in (*state.threads[:1], *[t for t in state.threads[1:] if _runs_python(t)][:_MOST_THREADS]):
            files = blocked_calls.blocking_files(pid, thread)
            if files:
                found[thread.tid] = pid, files
    named = blocked_calls.find_peers(list(found.values()), states)
    return {tid: sockets.name_sockets(files, network) for tid, files in zip(found, named, strict=True)}


def named_locks(states: Mapping[int, ProcessState]) -> dict[int, tuple[OpenFile, ...]]:
    """By pid the lock files that the main thread of a process names while it waits."""
    mains = {pid: state.threads[0] for pid, state in states.items() if state.threads}
    found = {pid: blocked_calls.named_locks(pid, main.frames) for pid, main in mains.items() if main.state == "S"}
    return {pid: files for pid, files in found.items() if files}


def _runs_python(thread: Thread) -> bool:
    """True for a Python thread of the program's; hangdoc's own probe waits for hangdoc."""
    return bool(thread.frames) and not thread.frames[-1].file.endswith("/hangdoc_probe_serve.py")


def process_of(
    family: Subject | None, looks: Sequence[Mapping[int, ProcessState]], files: BlockingFiles
) -> Process | None:
    """The process and those below it, each with its looks (by pid); None if ``family`` is None."""
    if family is None:
        return None
    recorded = files.branches.get(family.pid, NOTHING_RECORDED)
    return Process(
        pid=family.pid,
        ppid=family.ppid,
        role=family.role,
        comm=family.comm,
        argv=family.argv,
        started=family.started,
        looks=_with_files([look[family.pid] for look in looks if family.pid in look], files.blocked),
        blocking_files=files.blocked.get(family.pid, ()),
        locked_files=files.locked.get(family.pid, ()),
        named_locks=files.named.get(family.pid, ()),
        cwd=family.cwd,
        code=_with_recorded(files.code.get(family.pid, ()), recorded.code),
        branches=recorded.branches,
        taken=recorded.taken,
        caught=recorded.caught,
        environment=family.environment,
        children=tuple(found for child in family.children if (found := process_of(child, looks, files))),
    )


def _with_recorded(counted: tuple[RanCode, ...], recorded: tuple[RanCode, ...]) -> tuple[RanCode, ...]:
    """What the counters tell, but for code that the probe has watched, which has none."""
    watched = {(code.file, code.first_line, code.function) for code in recorded}
    others = (code for code in counted if (code.file, code.first_line, code.function) not in watched)
    return tuple(sorted((*others, *recorded), key=lambda code: (code.file, code.first_line, code.function)))


def _with_files(looks: list[ProcessState], blocked: Mapping[int, tuple[OpenFile, ...]]) -> tuple[ProcessState, ...]:
    """``looks``, the last with what its threads other than the main thread block on."""
    if not looks:
        return ()
    *before, last = looks
    others = (replace(t, blocking_files=blocked[t.tid]) if t.tid in blocked else t for t in last.threads[1:])
    return (*before, replace(last, threads=(*last.threads[:1], *others)))


def with_calls_under_way(details: ProbeDetails, state: ProcessState | None) -> ProbeDetails:
    """``details``, with what the process's threads say of calls whose recorder does not know when they end.

    The newest call of a thread has not ended while the thread is inside of it.
    """
    if not details.unsure_calls or state is None:
        return details
    journal = details.journal
    newest = {journal.calls[place].thread_id: place for place in range(len(journal.calls))}
    inside = {
        place
        for thread in state.threads
        if (place := newest.get(thread.python_id or -1)) is not None
        and _is_inside(own_frames(thread.frames), journal.stack(journal.calls[place].stack))
    }.intersection(details.unsure_calls)
    calls = tuple(replace(call, completed=False) if at in inside else call for at, call in enumerate(journal.calls))
    return replace(details, journal=replace(journal, calls=calls))


def _is_inside(now: Stack, issued: Stack) -> bool:
    """True if a thread with the stack ``now`` is in the function whose stack was ``issued``, at any line of it.

    Example: now [wait, all_reduce:31, step:7, main:20], issued [all_reduce:30, step:7, main:20] → True.
    """
    issued = tuple(itertools.dropwhile(lambda frame: frame.file.endswith(_HOOKS), issued))
    within = now[len(now) - len(issued) :]
    if not issued or len(within) < len(issued):
        return False
    # py-spy has qualified names: Model.<locals>.step.
    same = within[0].file == issued[0].file and within[0].function.rpartition(".")[2] == issued[0].function
    return same and all((a.file, a.line) == (b.file, b.line) for a, b in zip(within[1:], issued[1:], strict=True))


def rank_snapshot(
    target: RankTarget,
    process: Process | None,
    details: ProbeDetails | None,
    ended: ProcessExit | None,
    last_journal: Journal | None,
    log: LogTail | None,
) -> RankSnapshot:
    """The rank with what its probe said; ``last_journal`` replaces the journal of a probe that did not answer."""
    counters = details.counters if details is not None else None
    own = details.environment if details is not None else ()
    meets_at = details.meets_at if details is not None else ()
    return RankSnapshot(
        rank=target.rank,
        host=target.host,
        identity=target.identity,
        world_size=(counters.world_size if counters else None) or target.world_size,
        local_rank=target.local_rank,
        restart=target.restart,
        environment=tuple(sorted({**dict(meets_at), **dict(target.environment), **dict(own)}.items())),
        process=process,
        exit=ended,
        journal=details.journal if details is not None else last_journal,
        first_store=details.first_store if details is not None else (),
        log=log,
        rivals=target.rivals,
    )
