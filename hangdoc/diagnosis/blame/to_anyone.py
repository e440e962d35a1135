"""Ranks that wait for a message of any rank, or of one that no source shows: who has left out its own?

Example: ranks 0 and 1 serve rows, ranks 2 to 4 ask them for rows and then send each an end mark at line 49. Ranks 0 and
1 wait in a recv from any rank; ranks 2 and 4 have sent three end marks to each of them, rank 3 two → rank 3.
"""

from __future__ import annotations

from hangdoc.diagnosis.blame.message_blame import (
    ExchangeTooMany,
    MissingPartner,
    alone_in_exchange,
    is_from_anyone,
    too_many,
)
from hangdoc.diagnosis.bounds import COMPARED, TRIED
from hangdoc.diagnosis.condition.skipped_alone import skipped_alone
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.kinds import MESSAGES, Confidence


def unseen_partner(case: Case) -> Blame[MissingPartner | ExchangeTooMany] | None:
    """The ranks in a send or recv whose peer no source shows, if all others wait for them.

    Any rank that waits may be the partner. Example: rank 0 is in a recv from any rank, 1 and 2 wait for 0 in barrier →
    rank 0, alternatives (1,) and (2,).
    """
    sender = left_out_to_anyone(case)
    if sender is not None:
        return sender
    roots = tuple(sorted(case.graph.roots))
    if not roots or any(case.activities[r].kind not in MESSAGES for r in roots):
        return None
    waiting = sorted({w.waiter for w in case.graph.waits})
    proved = {*waiting, *roots} == set(case.activities)
    sure = "which rank the message is for, or from, could not be seen"
    if proved and alone_in_exchange(case, roots):
        return too_many(roots, ())
    return Blame(MissingPartner(), roots, tuple((r,) for r in waiting[:TRIED]), proved=proved, sure=sure)


def left_out_to_anyone(case: Case) -> Blame[MissingPartner] | None:
    """The one rank that alone has run, or written, what skips a message, of those that send to the ranks which take
    messages from anyone.

    Example: rank 0 waits in a recv from any rank, and rank 2 alone has run the suite of `if empty: continue` before the
    send → rank 2.
    """
    waiting, senders = _sides(case)
    if not waiting or len(senders) <= 2:
        return None
    asked = senders if len(senders) <= COMPARED else ()  # each is compared with all others
    skipping = {rank: by for rank in asked if (by := tuple(skipped_alone(case, rank)))}
    if len(skipping) != 1:
        return None
    ((rank, by),) = skipping.items()
    sure = f"rank {rank} alone has run what skips a message"
    return Blame(MissingPartner(alone=by), (rank,), proved=True, confidence=Confidence.LIKELY, sure=sure)


def _sides(case: Case) -> tuple[list[int], list[int]]:
    """(the ranks that take messages from anyone, those that wait for all of them)."""
    takers = [rank for rank, activity in case.activities.items() if is_from_anyone(activity)]
    others = [rank for rank in case.activities if rank not in takers]
    return takers, [rank for rank in others if takers and set(takers) <= case.graph.on(rank)]
