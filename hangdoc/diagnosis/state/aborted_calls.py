"""The call in which gloo aborted a rank, which took its record along.

gloo pairs two ranks' calls by their kind and by their number in the group (``Slot`` in gloo/types.h and the group's
tag): that an abort on sizes met the others in their last call tells which call it was. From where the rank made it, its
stack at the abort shows. Where that is the others' line, too, nothing is added: its tensor's size is not known.
"""

from __future__ import annotations

import signal
from dataclasses import replace

from hangdoc.diagnosis.frames.stacks import lines_of, site_of
from hangdoc.diagnosis.state.process import kind_mark
from hangdoc.model.journal import Call, Journal, ProcessGroup
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.process import Stack
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

FROM_EXIT = "exit"
"""``Journal.source`` of a journal that only has the call in which its rank was aborted."""


def with_aborted_calls(job: JobSnapshot) -> JobSnapshot:
    """``job`` with a journal of one call for each rank that was aborted in a collective and left no journal.

    Example: ranks 0 and 2 failed in all_reduce #12 of backward() at line 17, and rank 1 was aborted in a collective at
    line 21 → it made its all_reduce #12 there.
    """
    aborted = [rank.rank for rank in job.ranks if _was_aborted(rank)]
    found = _last_of_others(job) if job.ended and aborted else None
    if found is None:
        return job
    group, call, stack = found
    ranks = []
    for rank in job.ranks:
        own = rank.exit.stack if rank.exit is not None else ()
        apart = lines_of(site_of(own)) != lines_of(site_of(stack))
        if rank.rank in aborted and apart and (not group.members or rank.rank in group.members):
            made = replace(call, stack=0, input_sizes=(), input_dtypes=(), output_sizes=(), created_ns=0, root=None)
            ranks.append(
                replace(rank, journal=Journal(FROM_EXIT, (replace(group, created_at=-1),), (made,), stacks=(own,)))
            )
        else:
            ranks.append(rank)
    return replace(job, ranks=tuple(ranks))


def _was_aborted(rank: RankSnapshot) -> bool:
    """True if the rank was aborted in a collective, and its journal is lost."""
    end = rank.exit
    if end is None or rank.journal is not None or end.signal != signal.SIGABRT or end.exception or end.leaving:
        return False
    mark = kind_mark(end.stack)
    return mark is not None and mark.kind == ActivityKind.IN_COLLECTIVE


def _last_of_others(job: JobSnapshot) -> tuple[ProcessGroup, Call, Stack] | None:
    """(group, call, its stack) of the last call of all ranks with a journal; None where it is not one call."""
    found = []
    for journal in (rank.journal for rank in job.ranks if rank.journal is not None and rank.journal.calls):
        call = journal.calls[-1]
        group = next((each for each in journal.groups if each.name == call.group), ProcessGroup(call.group, ()))
        found.append((group, call, journal.stack(call.stack)))
    same = {(group.key, call.sequence, call.op) for group, call, _ in found}
    return found[0] if len(same) == 1 else None
