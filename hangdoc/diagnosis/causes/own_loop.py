"""HD202, HD101 and HD106 by a rank's own loop: what it left out, added or changed."""

from __future__ import annotations

from hangdoc.diagnosis.blame.own_loop import Event, LeftOwnLoop
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import at, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.message import Message, Ranks, joined, sentence


@cause("HD202", "HD201", "HD101", "HD106", explains=LeftOwnLoop, order=295)
def own_loop(case: Case, blame: Blame[LeftOwnLoop]) -> Finding:
    """HD202 of a message, HD101 of a collective that is missing or one too many, HD106 of one in another's place."""
    found = blame.found
    odd, rank = found.odd, found.rank
    others = tuple(r for r in sorted(case.seen) if r != rank)
    verb = {"left out": "left out", "added": "added"}.get(found.what, "issued")
    what: Message = [f"rank {rank} {verb} ", _named(odd)]
    if found.what == "changed":
        what = [what, " in place of ", _named(found.usual)]
    if found.what == "swapped":
        what = [what, " before ", _named(found.usual)]
    both = found.usual.is_message and found.found.is_message
    code = "HD106" if found.what in ("changed", "swapped") else "HD101"
    if odd.is_message:
        code = "HD201" if found.what == "swapped" and both else "HD202"
    fix: Message = (
        "give every send its recv: the same number of messages and the same partner on both sides, in every round"
        if code == "HD202"
        else ["call it on every rank of the group, or on none"]
    )
    return Finding(
        code,
        sentence(what, where_they_wait(case, others)),
        joined(
            [f"in its rounds before, rank {rank} issued ", _named(found.usual), " there"],
            ["this time it issued ", _named(found.found)],
        ),
        fix,
        "" if found.what != "changed" else "what it issued next was not seen",
    )


def _named(event: Event) -> Message:
    """'the send to rank 3 at train.py:61 step()', 'the all_reduce at train.py:9 step()'."""
    if not event.is_message:
        return [f"the {event.op}", at(event.frame)]
    way = {"send": "to", "recv": "from"}.get(event.op, "with")
    return [f"the {event.op} {way} ", Ranks(event.peers), at(event.frame)]
