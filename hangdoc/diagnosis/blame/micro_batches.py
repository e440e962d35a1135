"""Stages of one pipeline that cut their batch into different numbers of micro-batches.

Each stage passes one message for each micro-batch in either direction. So neighbors that count differently wait for
messages that nobody sends, wherever they stand in their schedules.

Example: ranks 0, 1 and 3 cut into 2, rank 2 into 4 → rank 2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from hangdoc.diagnosis.condition.given_micro_batches import computed_from
from hangdoc.diagnosis.condition.stack_comparison import is_past
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.stacks import Site, site_of, user_stack
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.state.pipeline_schedule import micro_batches, micro_batches_of_object
from hangdoc.model.kinds import MESSAGES, ActivityKind, Confidence
from hangdoc.model.wording import ranks_text


@dataclass(frozen=True, slots=True)
class UnevenMicroBatches(Explanation):
    """``counts``: rank → its number of micro-batches, for the ranks that are in a pipeline's schedule, or through with
    that step of it; with a ``name``, the value of what that number is computed from."""

    counts: dict[int, int]
    name: str = ""


def uneven_micro_batches(case: Case) -> Blame[UnevenMicroBatches] | None:
    """The stages whose number of micro-batches is not that of the most; None where they agree, or are not of one
    pipeline."""
    found = {rank: micro_batches(activity.stack) for rank, activity in case.activities.items()}
    inside = {rank: count for rank, count in found.items() if count is not None}
    # Others may just be in a later step, which has another number: these go on.
    waiting = [case.activities[r] for r in case.graph.stuck if r in inside and case.activities[r].kind in MESSAGES]
    if not waiting or any(case.activities[rank].moving for rank in inside):
        return None
    through = _through(case, inside)
    counts, name = (inside, "") if len(set(inside.values())) > 1 else _with_those_through(case, inside, through)
    # Another pipeline of the job may cut its batches in its own way.
    if not any(a.peer in counts and counts[a.peer] != counts[a.rank] for a in waiting if a.peer is not None):
        return None
    usual = Counter(counts.values()).most_common()
    tie = len(usual) > 1 and usual[0][1] == usual[1][1]
    sides = [tuple(sorted(rank for rank in counts if counts[rank] == count)) for count, _ in usual]
    odd = tuple(sorted(rank for side in sides[1:] for rank in side))
    sure = f"the micro-batches of {ranks_text(tuple(sorted(inside)))}, by their stacks"
    found_by = UnevenMicroBatches(counts, name)
    if tie and len(sides) == 2 and through:
        # Who is through with its step has had no more of them than the neighbor with the fewer ones.
        odd = tuple(sorted(inside if counts is not inside else _with_most(inside)))
        fewer = "with other numbers" if name else f"with fewer than {max(counts.values())}"
        sure = f"{sure}; {ranks_text(through)} through with that step, {fewer}"
        return Blame(found_by, odd, proved=True, confidence=Confidence.LIKELY, sure=sure)
    if tie:
        return Blame(found_by, odd, (sides[0],), proved=True, sure=f"{sure}; either number may be the wrong one")
    return Blame(found_by, odd, proved=True, confidence=Confidence.LIKELY, sure=sure)


def _with_most(counts: dict[int, int]) -> list[int]:
    most = max(counts.values(), default=0)
    return [rank for rank, count in counts.items() if count == most]


def _by_place(case: Case, ranks: Iterable[int]) -> list[list[int]]:
    """The ranks, by the lines that they are at."""
    found: dict[Site, list[int]] = {}
    for rank in ranks:
        found.setdefault(site_of(case.activities[rank].stack), []).append(rank)
    return list(found.values())


def _with_those_through(case: Case, inside: dict[int, int], through: tuple[int, ...]) -> tuple[dict[int, int], str]:
    """(the numbers, with those of the ranks that are through with that step, ''), by the schedules that these still
    hold; else (the values that the numbers are computed from, the name of these).

    Example: ranks 1 and 2 wait in a step of 8 micro-batches, ranks 0 and 3 are in the all_reduce after it, and their
    `schedule` has had 6 → all four.
    """
    same = _in_one_round(case, through, inside)
    if not inside or not same:
        return inside, ""
    kept = {rank: count for rank in same if (count := micro_batches_of_object(case.activities[rank].stack))}
    if kept.keys() == set(same):
        return ({**kept, **inside}, "") if max(kept.values()) < max(inside.values()) else (inside, "")
    known = computed_from(case, {*inside, *same})
    if known is None or len({known[1][rank] for rank in inside}) > 1:
        return inside, ""
    return known[1], known[0]


def _in_one_round(case: Case, through: tuple[int, ...], inside: Collection[int]) -> tuple[int, ...]:
    """Those of the ranks that are through for which what counts the rounds of the loops around the others' step is the
    same as on each of these; they may have left these loops since."""
    same = through
    for others in _by_place(case, inside):
        for frame in user_stack(case.activities[others[0]].stack):
            tree = case.sources.function(frame.file, frame.line)
            for loop in guards(tree, frame.line) if tree is not None else ():
                counts = [case.values.of(frame.file, frame.function, name) for name in loop.rounds]
                rounds = {tuple(each.get(other) for each in counts) for other in others}
                if loop.kind == "loop" and (not counts or len(rounds) > 1):
                    return ()
                if loop.kind == "loop":
                    same = tuple(r for r in same if tuple(each.get(r, "") for each in counts) in rounds)
    return same


def _through(case: Case, counts: dict[int, int]) -> tuple[int, ...]:
    """The ranks that are through with the step in which the stage of the most micro-batches still is: they wait for it
    in a collective further on."""
    stacks = [case.activities[ranks[0]].stack for ranks in _by_place(case, _with_most(counts))]
    return tuple(
        rank
        for rank, activity in sorted(case.activities.items())
        if rank not in counts
        and activity.kind == ActivityKind.IN_COLLECTIVE
        and all(is_past(case.sources, activity.stack, stack) for stack in stacks)
    )
