"""The call in which gloo aborted a rank, which took its record along.

gloo pairs two ranks' calls by their kind and by their number in the group (``Slot`` in gloo/types.h and the group's
tag): that an abort on sizes met the others in their last call tells which call it was. From where the rank made it, its
stack at the abort shows. Where that is the line of all others, too, nothing is added: its tensor's size is not known.
"""

from __future__ import annotations

import signal
from dataclasses import replace

from hangdoc.diagnosis.frames.stacks import Site, lines_of, site_of
from hangdoc.diagnosis.state.process import kind_mark
from hangdoc.model.journal import Call, Journal, ProcessGroup
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

FROM_EXIT = "exit"
"""``Journal.source`` of a journal that only has the call in which its rank was aborted."""


def with_aborted_calls(job: JobSnapshot) -> JobSnapshot:
    """``job`` with a journal of one call for each rank that was aborted in a collective and left no journal.

    Example: ranks 0 and 2 failed in all_reduce #12 of backward() at line 17, and rank 1 was aborted in a collective at
    line 21 → it made its all_reduce #12 there.
    """
    aborted = [rank.rank for rank in job.ranks if _was_aborted(rank)]
    others = _last_of_others(job) if job.ended and aborted else {}
    if not others:
        return job
    return replace(job, ranks=tuple(_with_call(each, others) if each.rank in aborted else each for each in job.ranks))


def _with_call(rank: RankSnapshot, others: dict[Site, tuple[ProcessGroup, Call]]) -> RankSnapshot:
    """``rank`` with its call, by those of the others by line; unchanged where all are at its line."""
    stack = rank.exit.stack if rank.exit is not None else ()
    group, like = next(iter(others.values()))
    site = lines_of(site_of(stack))
    if others.keys() == {site} or (group.members and rank.rank not in group.members):
        return rank
    # What it gave the call is known where another rank made it at the same line.
    call = others[site][1] if site in others else replace(like, input_sizes=(), input_dtypes=(), output_sizes=())
    made = replace(call, stack=0, created_ns=0, root=None)
    return replace(rank, journal=Journal(FROM_EXIT, (replace(group, created_at=-1),), (made,), stacks=(stack,)))


def _was_aborted(rank: RankSnapshot) -> bool:
    """True if the rank was aborted in a collective, and its journal is lost."""
    end = rank.exit
    if end is None or rank.journal is not None or end.signal != signal.SIGABRT or end.exception or end.leaving:
        return False
    mark = kind_mark(end.stack)
    return mark is not None and mark.kind == ActivityKind.IN_COLLECTIVE


def _last_of_others(job: JobSnapshot) -> dict[Site, tuple[ProcessGroup, Call]]:
    """Line → (group, call) of the last call of all ranks with a journal; {} where it is not one of one number, or gloo
    did not make it: on a device, an abort says nothing of the others' calls."""
    found = {}
    for journal in (rank.journal for rank in job.ranks if rank.journal is not None and rank.journal.calls):
        call = journal.calls[-1]
        group = next((each for each in journal.groups if each.name == call.group), ProcessGroup(call.group, ()))
        found[lines_of(site_of(journal.stack(call.stack)))] = group, call
    same = {(group.key, call.sequence, call.op) for group, call in found.values()}
    return found if len(same) == 1 and not any(call.state for _, call in found.values()) else {}
