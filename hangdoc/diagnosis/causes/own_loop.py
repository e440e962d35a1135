"""HD202, HD101 and HD106 by a rank's own loop: what it left out, added or changed."""

from __future__ import annotations

from hangdoc.diagnosis.blame.own_loop import LeftOwnLoop
from hangdoc.diagnosis.calls.events import Event
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import at, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.message import Message, Ranks, joined, sentence


@cause("HD202", "HD201", "HD101", "HD102", "HD106", explains=LeftOwnLoop, order=295)
def own_loop(case: Case, blame: Blame[LeftOwnLoop]) -> Finding:
    """HD202 of a message, HD101 of a collective that is missing or one too many, HD106 of one in another's place."""
    found = blame.found
    odd = found.odd
    others = tuple(r for r in sorted(case.seen) if r != found.rank)
    both = found.usual.is_message and found.found.is_message
    if found.what == "after the loop":
        return _left_the_loop(case, found)
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
        sentence(what_it_did(found), where_they_wait(case, others)),
        joined(
            *_compared(found),
        ),
        fix,
        "" if found.what != "changed" else "what it issued next was not seen",
    )


def what_it_did(found: LeftOwnLoop) -> Message:
    """'rank 3 left out the send to rank 4 at train.py:61 step()'."""
    if found.what == "after the loop":
        return [f"rank {found.rank} left the loop of ", _named(found.usual), " early"]
    verb = {"left out": "left out", "added": "added"}.get(found.what, "issued")
    before = {"changed": " in place of ", "swapped": " before "}.get(found.what, "")
    instead: Message = [before, _named(found.usual)] if before else ""
    return [f"rank {found.rank} {verb} ", _named(found.odd), instead]


def _compared(found: LeftOwnLoop) -> list[Message]:
    """What came there in its other rounds, or on the same stage of other pipelines, and what it issued itself."""
    rank, usual, siblings = found.rank, found.usual, found.siblings
    if not siblings:
        before: Message = [f"in its rounds before, rank {rank} issued ", _named(usual), " there"]
        return [before, ["this time it issued ", _named(found.found)]]
    does = "has its place in another group" if len(siblings) == 1 else "have its place in other groups"
    there: Message = [Ranks(siblings), f" {does}, and issued the {usual.op}", at(usual.frame), " there"]
    return [there, [f"rank {rank} issued ", _named(found.found)]]


def _left_the_loop(case: Case, found: LeftOwnLoop) -> Finding:
    """HD102 of a rank whose next call comes after its loop, by its line."""
    others = tuple(r for r in sorted(case.seen) if r != found.rank)
    return Finding(
        "HD102",
        sentence(what_it_did(found), where_they_wait(case, others)),
        [f"rank {found.rank} is at ", _named(found.found), ", which comes after it"],
        "give every rank the same number of iterations (agree on the count before the loop)",
        "the loop was not read: a call at the end of one of its rounds looks the same",
    )


def _named(event: Event) -> Message:
    """'the send to rank 3 at train.py:61 step()', 'the all_reduce at train.py:9 step()'."""
    if not event.is_message:
        return [f"the {event.op}", at(event.frame)]
    way = {"send": "to", "recv": "from"}.get(event.op, "with")
    return [f"the {event.op} {way} ", Ranks(event.peers), at(event.frame)]
