"""Two calls that changed places. What follows them shows that no call is missing, and none is one too many.

A device's CPU goes on issuing calls after the one that hangs, so there is something that follows.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from hangdoc.diagnosis.bounds import TRIED
from hangdoc.diagnosis.calls.history import GroupKey, RankProgram, Token


def is_swapped(programs: Mapping[int, RankProgram], mine: Token | None, theirs: Token | None) -> bool:
    """True if the rank of ``mine`` makes the call ``theirs`` later, and what follows the two agrees: only their order
    differs. A call that is one too many, or missing, is the simpler story where it explains as much.

    Example: mine [B, A, C], theirs [A, B, C] → True; mine [B, C, A], theirs [A, B, C] → False: there an A is missing,
    and the A is the next one; mine [B, A], theirs [A] → False: nobody else has made B.
    """
    if mine is None or theirs is None:
        return False
    return is_exchanged(calls_from(programs, mine, theirs.group), calls_from(programs, theirs, mine.group))


def is_exchanged(here: Sequence[Hashable], there: Sequence[Hashable]) -> bool:
    """True if two calls changed places, and what follows them agrees: the calls of two ranks from there on."""
    if not here or not there or here[0] == there[0] or there[0] not in here[:TRIED]:
        return False
    again = here.index(there[0])
    swapped = agreement([there[0], *here[:again], *here[again + 1 :]], there)
    # The farther the two are apart, the more a call left out is the simpler story.
    left_out = agreement(here, there[1:]) + (1 if again == 1 else 2)
    return swapped >= left_out and swapped > agreement(here[1:], there)


def is_one_too_many(programs: Mapping[int, RankProgram], mine: Token, theirs: Token) -> bool:
    """True if what follows ``mine`` agrees with the others' calls from ``theirs`` on, better than if ``theirs`` were
    missing.

    Example: mine [X, A, B], theirs [A, B] → True; mine [B, A], theirs [A, B, A] → False: the first A may be missing.
    """
    here, there = calls_from(programs, mine, theirs.group), calls_from(programs, theirs, mine.group)
    return agreement(here[1:], there) > agreement(here, there[1:])


def calls_from(programs: Mapping[int, RankProgram], call: Token, other: GroupKey) -> list[tuple[Hashable, ...]]:
    """What the rank issues from that call on in its group and the other one, without the numbers."""
    program = programs.get(call.rank)
    calls = program.tokens[call.order :] if program is not None and call.order >= 0 else [call]
    return [(t.group, t.op, t.sizes, t.site) for t in calls if t.group in (call.group, other)]


def agreement(some: Sequence[Hashable], others: Sequence[Hashable]) -> int:
    """How many are the same from the start on."""
    pairs = enumerate(zip(some, others, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(some), len(others)))


def issued_by_another_thread(programs: Mapping[int, RankProgram], mine: Token, theirs: Token) -> bool | None:
    """True if the rank of ``mine`` makes the call ``theirs`` in another thread; None where threads are not known."""
    program = programs.get(mine.rank)
    if program is None or not mine.thread_id:
        return None
    what = (theirs.group, theirs.op, theirs.sizes, theirs.site)
    later = program.tokens[mine.order + 1 : mine.order + 1 + TRIED]
    same = next((t for t in later if (t.group, t.op, t.sizes, t.site) == what), None)
    return same is not None and same.thread_id not in (0, mine.thread_id)
