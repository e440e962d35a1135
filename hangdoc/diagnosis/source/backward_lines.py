"""The line of calls that autograd's threads issue.

On a device, backward() runs in a thread of autograd's, so PyTorch records the gradient synchronisation without a line
of the program (torch 2.11, NCCL 2.28: no frame at all). Where the program calls backward() in one place only, it came
from there.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from hangdoc.diagnosis.frames.landmarks import serves_another_thread
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.journal import Call, Journal
from hangdoc.model.process import Frame
from hangdoc.model.shared_calls import SharedCalls
from hangdoc.model.snapshot import JobSnapshot


def with_backward_lines(job: JobSnapshot) -> JobSnapshot:
    """``job``, in which calls of autograd's threads are made from the program's only line that calls backward(); the
    same where it has none, or several.

    Example: rank 0's 17th all_reduce comes from pt_autograd_0 without a stack, `loss.backward()` is train.py:41 → it
    was made at train.py:41.
    """
    if not any(_lineless(rank.journal) for rank in job.ranks):
        return job
    lines = {call.at for call in Sources(job.sources).user_calls(*names("called_on_loss"))}
    if len(lines) != 1:
        return job
    (line,) = lines
    ranks = (replace(r, journal=_at(r.journal, line)) if r.journal is not None else r for r in job.ranks)
    return replace(job, ranks=tuple(ranks))


def _lineless(journal: Journal | None) -> Collection[int]:
    """The places of its calls of which only the thread is known."""
    if journal is None or isinstance(journal.calls, SharedCalls):  # those of dumps, which come without sources
        return ()
    return frozenset(at for at, call in enumerate(journal.calls) if _is_lineless(journal, call))


def _is_lineless(journal: Journal, call: Call) -> bool:
    return serves_another_thread(call.thread_name) and not user_stack(journal.stack(call.stack))


def _at(journal: Journal, line: Frame) -> Journal:
    places = _lineless(journal)
    if not places:
        return journal
    calls = (
        replace(call, stack=len(journal.stacks)) if at in places else call for at, call in enumerate(journal.calls)
    )
    return replace(journal, calls=tuple(calls), stacks=(*journal.stacks, (line,)))
