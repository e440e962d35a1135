"""Who of those that pass messages left one out, or passed one that nobody expects.

Example: ranks 0 and 2 wait in a recv for rank 1, which has always sent them one before each all_reduce, once has not,
and waits in that → (1,) 'left a message out once', 'every message without a partner is its own'.
"""

from __future__ import annotations

from hangdoc.diagnosis.bounds import COMPARED
from hangdoc.diagnosis.calls.message_pairs import common_rank, left_without
from hangdoc.diagnosis.condition.skipped_alone import has_skipped_alone
from hangdoc.diagnosis.hypotheses.suspects import Suspects
from hangdoc.diagnosis.messages.faults import crossed_tags, left_out, named_by_nobody, wrong_peer
from hangdoc.model.kinds import MESSAGES

LEFT_OUT = "left a message out once"


def by_messages(suspects: Suspects) -> None:
    """Histories, tags, and lines that have run."""
    case = suspects.case
    passing = [rank for rank in suspects.ranks if case.activities[rank].kind in MESSAGES]
    if not passing:
        return
    left = left_out(case)
    if left is not None:
        suspects.add((left.rank,), LEFT_OUT)
    alone = named_by_nobody(case) or wrong_peer(case) or common_rank(left_without(case.messages_alone))
    suspects.add(alone, "every message without a partner is its own")
    for tags in crossed_tags(case):
        suspects.add((tags.sender,), "sends under another tag")
        suspects.add((tags.receiver,), "waits under another tag")
    asked = {*passing, *(owing for rank in passing for owing in case.graph.on(rank))}
    for rank in sorted(asked) if len(asked) <= COMPARED else ():
        if has_skipped_alone(case, rank):
            suspects.add((rank,), "alone ran what skips a message")
