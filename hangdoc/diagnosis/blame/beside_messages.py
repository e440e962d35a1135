"""Ranks in a collective and ranks in a message that wait for each other, where the rounds of a loop tell who went by.

A message is no side of a collective's history, and what a rank issues after its message may still be the call that the
others wait in. Where it is in a later round of the loop that both are in, or further on in the same one, it has left
that call behind. Example: ranks 1 to 3 wait in the all_reduce of round 10, and rank 0 in its send of round 11 to rank 1
→ rank 0 left the all_reduce out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hangdoc.diagnosis.blame.divergences import decide
from hangdoc.diagnosis.calls.alignment import repairs
from hangdoc.diagnosis.calls.history import Token
from hangdoc.diagnosis.calls.stack_calls import from_stacks
from hangdoc.diagnosis.condition.rounds_ahead import is_further_on
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.landmarks import below_user
from hangdoc.diagnosis.frames.stacks import Site, fork, site_of, user_stack
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import MESSAGES, ActivityKind, Confidence
from hangdoc.model.operations import operation
from hangdoc.model.wording import ranks_text

_EXCHANGE = "exchange of messages"


def passed_by(case: Case) -> Blame[Diverged] | None:
    """The divergence of the ranks that wait in a message from those that wait for them in a collective, and that they
    have left behind; None where there is none."""
    if case.streams or not case.graph.stuck:
        return None
    for calling in _places(case):
        awaited = frozenset.intersection(*(frozenset(case.graph.on(rank)) for rank in calling))
        passing = [rank for rank in sorted(awaited) if case.activities[rank].kind in MESSAGES]
        found = _as_calls(case, calling, passing) if passing else {}
        tokens = {rank: each[0] for rank, each in _tokens(found).items()}
        theirs = [tokens[rank] for rank in calling if rank in tokens]
        ahead = [rank for rank in passing if rank in tokens and is_further_on(case, [tokens[rank]], theirs)]
        # Who has done its part of a rooted call may go on while the root waits for others.
        others = awaited.difference(ahead)
        if ahead and not (others and operation(case.activities[calling[0]].operation).rooted):
            for history in from_stacks({rank: found[rank] for rank in (*calling, *ahead)}):
                candidates = repairs(history)
                if candidates:
                    return _by_rounds(decide(case, candidates, proved=True), tuple(ahead))
    return None


def _by_rounds(found: Blame[Diverged], ahead: tuple[int, ...]) -> Blame[Diverged]:
    """``found`` without alternatives, where the few ranks that are ahead are to blame: those that still wait in the
    call have made none that the culprits will come to."""
    if found.culprits != ahead or found.confidence == Confidence.CERTAIN:
        return found
    sure = f"{ranks_text(ahead)} further on in the rounds of the loop that they share with those that wait for them"
    return replace(found, alternatives=(), confidence=Confidence.LIKELY, sure=sure)


def _places(case: Case) -> Iterator[tuple[int, ...]]:
    """The stuck ranks in one collective at one line, the most first."""
    by_site: dict[tuple[str, Site], list[int]] = {}
    for rank in sorted(case.graph.stuck):
        activity = case.activities[rank]
        if activity.kind == ActivityKind.IN_COLLECTIVE:
            by_site.setdefault((activity.operation, site_of(activity.stack)), []).append(rank)
    yield from sorted(map(tuple, by_site.values()), key=len, reverse=True)


def _as_calls(case: Case, calling: tuple[int, ...], passing: list[int]) -> dict[int, Activity]:
    """What these ranks do, with a message as a call from the line of the function that they share with the others:
    what decides about a message further in is the part that a rank plays, and no way past the others' call."""
    found = {rank: case.activities[rank] for rank in calling}
    theirs = user_stack(case.activities[calling[0]].stack)
    for rank in passing:
        activity = case.activities[rank]
        shared = fork(activity.stack, theirs).common
        mine = user_stack(activity.stack)
        stack = (*below_user(activity.stack), *mine[max(0, len(mine) - shared - 1) :])
        found[rank] = replace(activity, kind=ActivityKind.IN_COLLECTIVE, op=_EXCHANGE, stack=stack)
    return found


def _tokens(activities: dict[int, Activity]) -> dict[int, list[Token]]:
    return {rank: list(each) for history in from_stacks(activities) for rank, each in history.tokens.items()}
