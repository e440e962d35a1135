"""Ranks that are past the messages in which most ranks wait, where stacks alone are there to see.

The messages of a round are taken for one call of all ranks: the steps of a pipeline's schedule, or a loop of sends and
receives of the program's own. Which rank a message is for, a stack seldom shows; who has left the loop, it does.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import takewhile

from hangdoc.diagnosis.blame.divergences import all_groups_are_whole, decide
from hangdoc.diagnosis.blame.message_blame import MissingPartner
from hangdoc.diagnosis.calls.alignment import repairs
from hangdoc.diagnosis.calls.stack_calls import from_stacks
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.candidates import diverging_guards
from hangdoc.diagnosis.condition.elsewhere.other_arm import in_same_function
from hangdoc.diagnosis.condition.last_round import is_in_one_round
from hangdoc.diagnosis.condition.loops.ran_to_its_end import ran_to_its_end
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.landmarks import below_user
from hangdoc.diagnosis.frames.stacks import same_place, user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.state.pipeline_schedule import is_in_schedule
from hangdoc.model.kinds import MESSAGES, ActivityKind, Confidence
from hangdoc.model.process import Stack
from hangdoc.model.wording import ranks_text

_STEP = "schedule.step"
_EXCHANGE = "exchange of messages"


def outside_the_schedule(case: Case) -> Blame[Diverged] | None:
    """The ranks that are in a collective while the others wait in the schedule of the pipeline that all of them are
    stages of; None where histories tell more.

    Example: ranks 0 and 1 are in `schedule.step()`, rank 2 in the barrier after the loop of steps → rank 2.
    """
    inside = _in_messages(case)
    stacks = [case.activities[rank].stack for rank in inside]
    found = _outside(case, inside, _STEP) if inside and all(map(is_in_schedule, stacks)) else None
    if found is None or found.found.branch_points or len(found.culprits) != 1:
        return found
    return replace(found, found=replace(found.found, branch_points=tuple(_in_own_part(case, found.culprits, inside))))


def _in_own_part(case: Case, culprits: tuple[int, ...], inside: list[int]) -> list[BranchPoint]:
    """The loops of steps that the culprit has run and left, where each stage has such a loop in an arm of its own.

    Example: rank 0 is in `for x in images: ⏎ schedule.step(x)`, and rank 2 was in `for y in labels: ⏎
    schedule.step(target=y)` in the other arm of `if self.first:` → the loop over the labels.
    """
    (rank,) = culprits
    for other in inside:
        sides = (case.activities[rank].stack, case.activities[other].stack)
        for point in diverging_guards(case.sources, case.values, sides, (culprits, (other,))):
            own = in_same_function(case.sources, point, sides[1]) if point.guarded == 1 else []
            left = [each for each in own if each.uneven and case.table.ran(rank, each.file, each.line) is not False]
            if left:
                return left
    return []


def left_the_exchange(case: Case) -> Blame[Diverged] | Blame[MissingPartner] | None:
    """The ranks that have left the loop in which most of the ranks wait for messages, and are in one collective after
    it; None where histories tell more, or where peers that are known show that the messages are not theirs.

    Example: ranks 0, 1 and 3 wait for messages in `for sweep in range(sweeps):`, rank 2 is in the all_reduce after that
    loop → rank 2. Several ranks outside may also have what they need, while the others name wrong peers.
    """
    inside = _in_messages(case)
    outside = tuple(sorted(set(case.activities) - set(inside)))
    peers = {rank: case.activities[rank].peer for rank in inside}
    robbed = [rank for rank, peer in peers.items() if peer in outside]
    if not inside or len(outside) >= len(inside) or (not robbed and set(peers.values()) != {None}):
        return None
    places = Counter(case.activities[rank].where for rank in robbed or inside)
    usual = max(robbed or inside, key=lambda rank: places[case.activities[rank].where])  # others may be a loop further
    sides = (case.activities[outside[0]].stack, case.activities[usual].stack)
    points = diverging_guards(case.sources, case.values, sides, (outside, tuple(inside)))
    left = [p for p in points if p.uneven and p.guarded == 1 and not p.of_library]
    left = [p for p in left if 2 * _how_many_are_in(case, p, inside) >= len(inside)]
    ended = [p for p in left if ran_to_its_end(case, p, (outside, tuple(inside)))]
    if ended and robbed:
        return _through_all_rounds(outside) if len(outside) == 1 else None
    if ended:  # further in, something kept it from the exchange
        left = [p for p in points if p.guarded == 1 and not (p in ended or p.of_library or p.rank_like)]
        left = [p for p in left if p.guard.kind in CONDITIONS]
    # Where peers are known, these tell more about messages within one loop.
    apart = not _in_one_loop(case, *sides) or (not robbed and is_in_one_round(case, outside[0], usual))
    found = _outside(case, inside, _EXCHANGE) if left and apart else None
    if found is None or set(found.culprits) != set(outside):
        return None
    found = replace(found, found=replace(found.found, branch_points=tuple(left)))
    if len(outside) == 1:
        return found
    sure = "they have left a loop that the others are in; which ranks the messages are for could not be seen"
    return replace(found, alternatives=(tuple(inside),), confidence=Confidence.POSSIBLE, sure=sure)


def _through_all_rounds(outside: tuple[int, ...]) -> Blame[MissingPartner]:
    """The blame of the rank that went through all rounds of the loop, in which it left out what the others wait for."""
    sure = f"{ranks_text(outside)} has gone through all rounds of the loop in which the others wait for messages"
    return Blame(MissingPartner(), outside, proved=True, confidence=Confidence.LIKELY, sure=sure)


def _how_many_are_in(case: Case, loop: BranchPoint, ranks: list[int]) -> int:
    """How many of the ranks are in the loop: one that a rank goes through in a part of its own is not the others'."""
    stacks = [case.activities[rank].stack for rank in ranks]
    return sum(any(f.file == loop.file and loop.guard.holds(f.line) for f in stack) for stack in stacks)


def _in_one_loop(case: Case, mine: Stack, theirs: Stack) -> bool:
    """True if some loop of the user's holds both: then the messages may belong to another round of it."""
    loops = [
        {
            (frame.file, guard.place)
            for frame in user_stack(stack)
            if (tree := case.sources.function(frame.file, frame.line)) is not None
            for guard in guards(tree, frame.line)
            if guard.kind == "loop"
        }
        for stack in (mine, theirs)
    ]
    return bool(loops[0] & loops[1])


def _in_messages(case: Case) -> list[int]:
    """The ranks in a message, if there are several, all others are in a collective, and no history tells more; else
    none."""
    kinds = {rank: activity.kind for rank, activity in case.activities.items()}
    inside = [rank for rank, kind in kinds.items() if kind in MESSAGES]
    if case.programs or len(inside) < 2 or set(kinds.values()) - MESSAGES != {ActivityKind.IN_COLLECTIVE}:
        return []
    return inside if all_groups_are_whole(case) else []


def _outside(case: Case, inside: list[int], op: str) -> Blame[Diverged] | None:
    """The repair in which the ranks ``inside`` make one call ``op``, from the lines that all of them share."""
    stacks = [case.activities[rank].stack for rank in inside]
    shared = _shared_part(stacks)
    steps = {
        rank: replace(
            case.activities[rank], kind=ActivityKind.IN_COLLECTIVE, op=op, stack=(*below_user(stack), *shared)
        )
        for rank, stack in zip(inside, stacks, strict=True)
    }
    for history in from_stacks({**case.activities, **steps}) if shared else ():
        candidates = repairs(history)
        if candidates:
            return decide(case, candidates, proved=True)
    return None


def _shared_part(stacks: list[Stack]) -> Stack:
    """The user's frames that all these stacks have in common, from the outermost on: further in, each stage has a line
    of its own."""
    ways = [tuple(reversed(user_stack(stack))) for stack in stacks]
    shared = takewhile(lambda frames: all(same_place(frames[0], each) for each in frames), zip(*ways, strict=False))
    return tuple(reversed([frames[0] for frames in shared]))
