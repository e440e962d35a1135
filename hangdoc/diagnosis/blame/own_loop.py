"""Which rank left the order that its own loop has always had, where messages are involved.

Between ranks that pass messages nobody has the same calls as another: there is no majority to compare with. But a
training loop repeats itself, so a rank that left a call out, added one or chose another partner shows it in its own
history. Where a device executes the calls, the CPU has gone on, and what follows shows which of the three it is.

Example: recv 1, send 2, all_reduce, recv 1, send 2, all_reduce, recv 1, all_reduce → send 2 was left out.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hangdoc.diagnosis.bounds import COMPARED, OFTEN, SCANNED, TRIED
from hangdoc.diagnosis.calls.events import Event
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.model.kinds import MESSAGES, Confidence


@dataclass(frozen=True, slots=True)
class LeftOwnLoop(Explanation):
    """``rank`` did something else than in every round before, or than its siblings."""

    rank: int
    what: str
    """'left out', 'added', 'changed', 'swapped' with the next one, or 'after the loop'."""
    usual: Event
    """What comes there in its other rounds."""
    found: Event
    """What it issued there."""
    siblings: tuple[int, ...] = ()
    """The ranks that issued ``usual`` there, where it is not its own rounds that did."""

    @property
    def odd(self) -> Event:
        """The event that the sentence is about."""
        return self.usual if self.what == "left out" else self.found


def left_own_loop(case: Case) -> Blame[LeftOwnLoop] | None:
    """The one rank that left its own loop's order, in a job whose devices wait in messages."""
    waiting = sorted(case.seen & case.programs.keys(), key=lambda r: (case.activities[r].kind not in MESSAGES, r))
    events = {rank: case.events.of(rank)[-SCANNED:] for rank in waiting[:SCANNED]}
    lonely = ranks_with_lonely_messages(case)
    departed = (_departure(rank, mine, lonely=rank in lonely) for rank, mine in events.items())
    found = [odd for odd in departed if odd is not None and not _is_usual_elsewhere(odd, events)]
    found = [odd for odd in found if not _is_made_by_all(case, odd)]
    if not found:
        return None
    first = min(found, key=lambda each: (each.found.created_ns, each.rank))
    others = tuple((each.rank,) for each in found if each is not first)
    if others:
        return None
    sure = f"rank {first.rank} alone left the order that its own loop had before"
    return Blame(first, (first.rank,), proved=bool(case.graph.stuck), confidence=Confidence.LIKELY, sure=sure)


def _is_usual_elsewhere(odd: LeftOwnLoop, events: Mapping[int, list[Event]]) -> bool:
    """True if another rank of the same place in groups of its own took that step too: an evaluation, a checkpoint."""
    if odd.what == "after the loop":
        return False  # all come to it in the end
    own = events[odd.rank]
    at = next(n for n, event in enumerate(own) if event is odd.found)
    taken = own[at - 1].role, odd.found.role
    return any(
        (a.role, b.role) == taken for rank, mine in events.items() if rank != odd.rank for a, b in pairwise(mine)
    )


def _is_made_by_all(case: Case, odd: LeftOwnLoop) -> bool:
    """True if it added a collective that every other member of the group issued as well: the program adds it now and
    then, as a loss that is told every tenth step."""
    event = odd.found
    group = case.programs[odd.rank].groups.get(event.group)
    if odd.what != "added" or event.is_message or group is None:
        return False
    others = [case.programs.get(rank) for rank in group.members if rank != odd.rank]
    return bool(others) and all(
        other is not None
        and any((t.group, t.sequence, t.op) == (group.key, event.number, event.op) for t in other.tokens)
        for other in others
    )


def ranks_with_lonely_messages(case: Case) -> frozenset[int]:
    """The ranks that wait for a message of which its peer knows nothing."""
    return frozenset(each.rank for each in case.messages_alone if not each.message.completed)


def _departure(rank: int, events: list[Event], *, lonely: bool) -> LeftOwnLoop | None:
    """The first event that its loop never had at that place; None where it kept its order, or none can be seen."""
    numbers: dict[Hashable, int] = {}
    keys = [numbers.setdefault(event.key, len(numbers)) for event in events]
    length, at = _round(keys)
    if not length or at >= len(keys):
        return None
    usual = events[at - length]
    what = what_was_done(events, keys, at, keys[at - length :], usual, lonely=lonely)
    return LeftOwnLoop(rank, what, usual, events[at])


def what_was_done(
    events: Sequence[Event],
    keys: Sequence[int],
    at: int,
    expected: Sequence[int],
    usual: Event,
    *,
    lonely: bool,
) -> str:
    """``LeftOwnLoop.what`` of the rank whose event at that place, by its key, is not the first of the ``expected``.

    ``lonely``: a message that it waits for has no partner.
    """
    fits = {
        "left out": _agree(keys[at:], expected[1:]),
        "added": _agree(keys[at + 1 :], expected) if at + 1 < len(keys) else 0,
        "changed": _agree(keys[at + 1 :], expected[1:]) if at + 1 < len(keys) else 0,
    }
    if [*keys[at + 1 : at + 2], keys[at]] == [*expected[:2]]:
        fits["swapped"] = 1 + _agree(keys[at + 2 :], expected[2:])
    # Of equally good ones the first: a call that is missing is the most common fault.
    what = max(fits, key=lambda each: fits[each])
    if not fits[what] and lonely and at + 1 == len(keys) and events[at].is_message:
        return "added"
    return what if fits[what] else _alone(keys, at, events[at], usual)


def _alone(keys: Sequence[int], at: int, found: Event, usual: Event) -> str:
    """What an event is behind which nothing is known: one that came before follows what was left out, another one of
    the same line is another call there, and one of a line that was never seen was added."""
    if keys[at] in keys[:at]:
        return "left out"
    return "changed" if found.frame is None or found.frame == usual.frame else "added"


def _round(keys: list[int]) -> tuple[int, int]:
    """(the length of a round, the first place that differs from the round before): of the lengths that are tried, the
    one by which the events repeat themselves longest. (0, 0) where nothing repeats.

    Example: a b b a b b a b a → (3, 8).
    """
    anchors = [at for at, key in enumerate(keys) if key == keys[len(keys) // 3]] if keys else []
    lengths = sorted({b - a for i, a in enumerate(anchors) for b in anchors[i + 1 :]})[:COMPARED]
    best = (OFTEN - 1, 0, 0)
    for length in lengths:
        run = 0
        for at in range(length, len(keys) + 1):
            if at < len(keys) and keys[at] == keys[at - length]:
                run += 1
                continue
            if run >= length // 2 and run > best[0]:
                best = (run, length, at)
            run = 0
    return best[1], best[2]


def _agree(some: Sequence[int], others: Sequence[int]) -> int:
    limit = min(len(some), len(others), TRIED)
    return next((at for at in range(limit) if some[at] != others[at]), limit)
