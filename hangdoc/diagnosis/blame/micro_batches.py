"""Stages of one pipeline that cut their batch into different numbers of micro-batches.

Each stage passes one message for each micro-batch in either direction. So neighbors that count differently wait for
messages that nobody sends, wherever they stand in their schedules.

Example: ranks 0, 1 and 3 cut into 2, rank 2 into 4 → rank 2.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hangdoc.diagnosis.condition.stack_comparison import is_past
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.state.pipeline_schedule import micro_batches
from hangdoc.model.kinds import MESSAGES, ActivityKind, Confidence
from hangdoc.model.wording import ranks_text


@dataclass(frozen=True, slots=True)
class UnevenMicroBatches(Explanation):
    """``counts``: rank → its number of micro-batches, for the ranks that are in a pipeline's schedule."""

    counts: dict[int, int]


def uneven_micro_batches(case: Case) -> Blame[UnevenMicroBatches] | None:
    """The stages whose number of micro-batches is not that of the most; None where they agree, or are not of one
    pipeline."""
    found = {rank: micro_batches(activity.stack) for rank, activity in case.activities.items()}
    counts = {rank: count for rank, count in found.items() if count is not None}
    # Others may just be in a later step, which has another number: these go on.
    waiting = [case.activities[r] for r in case.graph.stuck if r in counts and case.activities[r].kind in MESSAGES]
    if len(set(counts.values())) < 2 or any(case.activities[rank].moving for rank in counts):
        return None
    # Another pipeline of the job may cut its batches in its own way.
    if not any(a.peer in counts and counts[a.peer] != counts[a.rank] for a in waiting if a.peer is not None):
        return None
    usual = Counter(counts.values()).most_common()
    tie = len(usual) > 1 and usual[0][1] == usual[1][1]
    sides = [tuple(sorted(rank for rank in counts if counts[rank] == count)) for count, _ in usual]
    odd = tuple(sorted(rank for side in sides[1:] for rank in side))
    sure = f"the micro-batches of {ranks_text(tuple(sorted(counts)))}, by their stacks"
    found_by = UnevenMicroBatches(counts)
    if tie and len(sides) == 2 and (through := _through(case, counts)):
        # Who is through with its step has had no more of them than the neighbor with the fewer ones.
        most = max(counts.values())
        odd = tuple(sorted(rank for rank in counts if counts[rank] == most))
        sure = f"{sure}; {ranks_text(through)} through with that step, with fewer than {most}"
        return Blame(found_by, odd, proved=True, confidence=Confidence.LIKELY, sure=sure)
    if tie:
        return Blame(found_by, odd, (sides[0],), proved=True, sure=f"{sure}; either number may be the wrong one")
    return Blame(found_by, odd, proved=True, confidence=Confidence.LIKELY, sure=sure)


def _through(case: Case, counts: dict[int, int]) -> tuple[int, ...]:
    """The ranks that are through with the step in which the stage of the most micro-batches still is: they wait for it
    in a collective further on."""
    most = [rank for rank in counts if counts[rank] == max(counts.values())]
    stacks = [case.activities[rank].stack for rank in most]
    return tuple(
        rank
        for rank, activity in sorted(case.activities.items())
        if rank not in counts
        and activity.kind == ActivityKind.IN_COLLECTIVE
        and all(is_past(case.sources, activity.stack, stack) for stack in stacks)
    )
