"""Whether the job would go on with a repair: the calls from the divergence on, replayed as the ranks issued them.

Every group by itself may have several repairs, and most of them leave the ranks waiting for each other in another
group. Only calls after the first edit, and calls that had not completed, are replayed; ranks that issue the same calls
there are one actor. A rank that has issued all its known calls may still issue any other, unless it has ended.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from hangdoc.diagnosis.calls.alignment import Alignment, Gap
from hangdoc.diagnosis.calls.history import END, GroupHistory, GroupKey, RankProgram, Token
from hangdoc.model.operations import message_way

_MOST_SETS = 24
"""Sets of culprits that are tried, the smallest first; chosen by hand: each costs one replay of the job."""

Slot = tuple[int, int | tuple[int, int]]
"""One call of all its members: (the group's place among the histories, the call's number in it).

Of a message: (-1, (sender, receiver)).
"""


@dataclass(eq=False)
class _Actor:
    """Ranks that issue the same from here on."""

    slots: list[Slot]
    """What they still issue, in their program's order."""
    kinds: dict[Slot, Hashable]
    """What must agree for the call to complete."""
    extra: frozenset[Slot]
    """Calls that the repair inserts; their exact places in the program are open."""
    alive: bool
    at: int = 0
    places: dict[Slot, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.places = {slot: place for place, slot in enumerate(self.slots)}

    @property
    def next(self) -> Slot | None:
        """The call it waits in; None: it has issued all that is known of it."""
        return self.slots[self.at] if self.at < len(self.slots) else None


def completing(
    programs: dict[int, RankProgram],
    histories: list[GroupHistory],
    ended: frozenset[int],
    found: list[list[Alignment]],
) -> list[Alignment]:
    """Of the repairs found group by group, one alignment for each smallest set of ranks with which every call
    completes; empty where no set that one group suggests is enough.

    Example: group 1 may be mended on rank 0 or rank 1, group 2 on rank 1 or rank 2 → the repair on rank 1.
    """
    sets: dict[tuple[int, ...], Alignment] = {}
    for alignment in sorted((a for group in found for a in group), key=lambda a: a.when):
        sets.setdefault(alignment.culprits, alignment)
    passed: list[Alignment] = []
    for culprits, alignment in sorted(sets.items(), key=lambda item: len(item[0]))[:_MOST_SETS]:
        if passed and len(culprits) > len(passed[0].culprits):
            break
        allowed = frozenset(culprits)
        elsewhere = [next((a for a in group if allowed.issuperset(a.culprits)), None) for group in found]
        rest = [a for a in elsewhere if a is not None and a.history is not alignment.history]
        for variant in _variants(alignment):
            if completes(programs, histories, ended, [variant, *rest]):
                passed.append(variant)
                break
    return sorted(passed, key=lambda a: a.when)


def _variants(alignment: Alignment) -> Iterator[Alignment]:
    """The repair, then the same with its last edit the other way: 'extra' for 'missing', or 'missing' for 'extra'.

    At the end of both sequences the two cost the same within the group.
    """
    yield alignment
    gap = alignment.gaps[-1]
    mine, theirs = gap.mine, gap.theirs
    if mine is None or theirs is None or mine.op == END:
        return
    if mine.sequence == alignment.history.issued(mine.rank):
        missing = gap.kind == "delete"
        other = replace(gap, kind="insert" if missing else "delete", token=theirs if missing else mine)
        yield replace(alignment, gaps=(*alignment.gaps[:-1], other))


def completes(
    programs: dict[int, RankProgram],
    histories: list[GroupHistory],
    ended: frozenset[int],
    repairs: list[Alignment],
    *,
    in_order: bool = False,
) -> bool:
    """True if every issued call completes with those repairs, at most one for each group.

    ``in_order``: as on devices, a rank's calls that have not completed hold up those that it issued after them.
    """
    stage = _Stage(programs, histories, ended, {id(a.history): a for a in repairs}, in_order)
    return stage.play()


@dataclass
class _Stage:
    """The replay: all actors, and which of them each group needs."""

    programs: dict[int, RankProgram]
    histories: list[GroupHistory]
    ended: frozenset[int]
    repairs: dict[int, Alignment]
    in_order: bool = False
    actors: dict[int, _Actor] = field(default_factory=dict)
    _casts: dict[int, dict[_Actor, int]] = field(default_factory=dict)

    @cached_property
    def index(self) -> dict[GroupKey, int]:
        """Group → its place among the histories."""
        return {history.key: place for place, history in enumerate(self.histories)}

    @cached_property
    def edits(self) -> dict[int, dict[int, list[Gap]]]:
        """Place of an edited group → member → its edits there."""
        found: dict[int, dict[int, list[Gap]]] = {}
        for place, history in enumerate(self.histories):
            repair = self.repairs.get(id(history))
            if repair is not None:
                found[place] = {rank: [] for rank in history.members}
                for gap in repair.gaps:
                    for rank in gap.ranks:
                        found[place][rank].append(gap)
        return found

    @cached_property
    def lists(self) -> dict[int, list[int]]:
        """Rank → its calls in each group, by identity: ranks that issue the same share a list."""
        found: dict[int, list[int]] = {}
        for history in self.histories:
            for rank, tokens in history.tokens.items():
                found.setdefault(rank, []).append(id(tokens))
        return found

    def play(self) -> bool:
        """Complete every call that can complete. True if no actor is left waiting.

        Example: 0 waits in A then B, 1 in B then A → no call has all its members, False.
        """
        shared: dict[Hashable, _Actor] = {}
        for rank, program in self.programs.items():
            same = self._same(rank, program)
            if same not in shared:
                shared[same] = self._part(rank, program)
            self.actors[rank] = shared[same]
        actors = list(shared.values())
        moved = True
        while moved:
            moved = False
            for slot in dict.fromkeys(actor.next for actor in actors):
                if slot is None:
                    continue
                cast = self._cast(slot)
                waiting = [actor for actor in cast if actor.next == slot]
                if not waiting:
                    continue  # a call in a group that its rank is no member of: odd data
                kind = waiting[0].kinds[slot]
                if all(_plays(actor, slot, kind) for actor in cast):
                    moved = True
                    for actor in waiting:
                        actor.at += 1
        return all(actor.next is None for actor in actors)

    def _cast(self, slot: Slot) -> list[_Actor]:
        """The actors that the call needs."""
        place, number = slot
        if isinstance(number, tuple):
            return [self.actors[rank] for rank in number if rank in self.actors]
        history = self.histories[place]
        if place not in self._casts:
            self._casts[place] = {self.actors[rank]: rank for rank in history.members if rank in self.actors}
        if place in self.edits:
            return list(self._casts[place])
        # In a group without edits, a call that a rank has issued and does not wait in is done.
        return [
            actor for actor, rank in self._casts[place].items() if slot in actor.kinds or history.issued(rank) < number
        ]

    def _same(self, rank: int, program: RankProgram) -> Hashable:
        """A key that is equal for ranks which issue the same calls, so that they are one actor."""
        return (
            rank in self.ended,
            tuple(id(gap) for edits in self.edits.values() for gap in edits.get(rank, ())),
            tuple(self.lists.get(rank, ())),
            _message(rank, program),
            () if program.journal.calls else tuple(p for p, edits in self.edits.items() if rank in edits),
        )

    def _part(self, rank: int, program: RankProgram) -> _Actor:
        """What the rank still issues."""
        script = _Script(alive=rank not in self.ended)
        edited = [place for place, edits in self.edits.items() if rank in edits]
        for place in edited:
            history = self.histories[place]
            script.edit(place, history.tokens.get(rank, []), self.edits[place][rank], _start(self.repairs[id(history)]))
        # Several pending calls at once are asynchronous and hold up no rank.
        for token in program.pending if self.in_order or len(program.recording.pending) < 2 else ():
            place = self.index.get(token.group, -1)
            if place >= 0 and place not in edited:
                script.entries.append((token.order, (place, token.sequence), _kind(token)))
        message = _message(rank, program)
        if message is not None:
            script.entries.append((len(program.journal.calls), (-1, message), "message"))
        return script.actor()


@dataclass
class _Script:
    """What one rank still issues, as it is put together."""

    alive: bool
    entries: list[tuple[int, Slot, Hashable]] = field(default_factory=list)
    """(place in the rank's program, the call, what must agree for it to complete)"""
    extra: set[Slot] = field(default_factory=set)

    def edit(self, place: int, tokens: Sequence[Token], gaps: list[Gap], start: int) -> None:
        """Add the rank's calls in the group at ``place``, after the edits ``gaps`` of them."""
        kept, inserted = _renumbered(tokens, gaps, start)
        self.entries += [(token.order, (place, number), _kind(token)) for token, number in kept]
        self.extra |= {(place, number) for number in inserted}
        ends = {gap.kind for gap in gaps if gap.token.op == END}
        self.alive = (self.alive or "delete" in ends) and "insert" not in ends

    def actor(self) -> _Actor:
        """The rank that plays it."""
        entries = sorted(self.entries, key=lambda entry: entry[0])
        slots, kinds = [slot for _, slot, _ in entries], {slot: kind for _, slot, kind in entries}
        return _Actor(slots, kinds, frozenset(self.extra), self.alive)


def _message(rank: int, program: RankProgram) -> tuple[int, int] | None:
    """(sender, receiver) of the one message that the rank waits for."""
    points = [p for p in program.journal.point_to_points if not p.completed and p.peer >= 0]
    if len(points) != 1:
        return None
    return (rank, points[0].peer) if message_way(points[0].op) == "send" else (points[0].peer, rank)


def _plays(actor: _Actor, slot: Slot, kind: Hashable) -> bool:
    """True if the actor is in the call now, is past it, or may still issue it."""
    if actor.next == slot:
        return actor.kinds[slot] == kind
    if slot in actor.places:
        return actor.places[slot] < actor.at
    return slot in actor.extra or (actor.next is None and actor.alive)


def _start(repair: Alignment) -> int:
    """The number of the first edited call of the group."""
    numbers = [t.sequence for gap in repair.gaps for t in (gap.mine, gap.theirs) if t is not None]
    return min(numbers, default=0)


def _renumbered(tokens: Sequence[Token], gaps: list[Gap], start: int) -> tuple[list[tuple[Token, int]], list[int]]:
    """(the rank's calls from ``start`` on, each with its number after the edits; the numbers of inserted calls).

    Example: calls 1 to 3 with call 2 deleted → ([(1, 1), (3, 2)], []), where each call is shown by its old number.
    """
    deleted = {gap.token.sequence for gap in gaps if gap.kind == "delete"}
    inserts = [gap for gap in gaps if gap.kind == "insert"]
    # One loop in spite of its branches: each edit shifts the numbers of all calls after it.
    # The numbers of the calls that others are inserted before; None: after the rank's last call.
    before = [gap.mine.sequence if gap.mine is not None and gap.mine.op != END else None for gap in inserts]
    ends_at = min((gap.mine.sequence for gap in inserts if gap.mine and gap.token.op == END), default=None)
    kept: list[tuple[Token, int]] = []
    added: list[int] = []
    shift = 0
    for token in tokens:
        if token.sequence < start or (ends_at is not None and token.sequence >= ends_at):
            continue
        for _ in range(before.count(token.sequence)):
            added.append(token.sequence + shift)
            shift += 1
        if token.sequence in deleted:
            shift -= 1
        else:
            kept.append((token, token.sequence + shift))
    end = (tokens[-1].sequence if tokens else 0) + shift + 1
    added += range(end, end + before.count(None))
    return kept, added


def _kind(token: Token) -> Hashable:
    return token.op, token.sizes
