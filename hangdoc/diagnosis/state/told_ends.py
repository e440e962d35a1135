"""Ranks whose end nobody saw, and of which the job's output tells what ended them.

Example: rank 2 is a child of rank 0, has ended, and the output has 'Process tp2:' with a traceback that begins in
follower(), which the other children run, and ends in 'KeyError: 'audio'' → rank 2 ended with that KeyError.
"""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.model.process import Process, Stack
from hangdoc.model.snapshot import JobSnapshot, Traceback
from hangdoc.model.told_errors import ended_thread


def with_told_ends(job: JobSnapshot) -> JobSnapshot:
    """``job`` with the exception of the one rank whose end is unknown; as it is where several ranks or tracebacks may
    belong together."""
    open_ends = [r for r in job.ranks if (e := r.exit) and e.status is None and e.signal is None and not e.exception]
    running = {_began(each) for rank in job.ranks for each in _main_stacks(rank.process)} - {None}
    told = [each for each in job.tracebacks if _ended_process(each) and _began(each.frames) in running]
    if len(open_ends) != 1 or len(told) != 1 or told[0].rank not in (None, open_ends[0].rank):
        return job
    end, (kind, _, message) = open_ends[0].exit, told[0].error.partition(": ")
    assert end is not None  # it is one of the open ends
    known = replace(end, exception=kind.rpartition(".")[2], message=message, stack=told[0].frames)
    return replace(job, ranks=tuple(replace(r, exit=known) if r is open_ends[0] else r for r in job.ranks))


def _ended_process(told: Traceback) -> bool:
    """True if an exception that nothing caught ended a child of multiprocessing's."""
    return bool(told.announced) and not ended_thread(told.announced)


def _began(stack: Stack) -> tuple[str, str] | None:
    """The function of the program's that a process was given to run."""
    own = user_stack(stack)
    return (own[-1].file, plain(own[-1].function).rpartition(".")[2]) if own else None


def _main_stacks(process: Process | None) -> list[Stack]:
    main = process.last.main if process is not None and process.last is not None else None
    return [main.frames] if main is not None else []
