"""Would the job go on with this repair? The calls from the divergence on, replayed as the ranks issued them.

Every group by itself may have several repairs, and most of them leave the ranks waiting for each other in another
group. Only what lies behind the first edit and what had not completed is replayed; ranks that issue the same there
move as one. A rank that has issued all that is known of it may still issue anything, unless it has ended.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from hangdoc.diagnosis.calls.alignment import Alignment, Gap
from hangdoc.diagnosis.calls.history import END, GroupHistory, GroupKey, RankProgram, Token
from hangdoc.diagnosis.frames.operations import message_way

_MOST_SETS = 24
"""Sets of culprits that are tried, the smallest first: each costs one replay of the job."""

Slot = tuple[int, int | tuple[int, int]]
"""One meeting: which group (its place among the histories, -1: a message) and which number in it (or which pair)."""


@dataclass(eq=False)
class _Actor:
    """Ranks that issue the same from here on."""

    slots: list[Slot]
    """What they still issue, in their program's order."""
    kinds: dict[Slot, Hashable]
    """What must agree for the call to complete."""
    extra: frozenset[Slot]
    """Calls that the repair inserts; where exactly they stand is open."""
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
        for told in _tellings(alignment):
            if completes(programs, histories, ended, [told, *rest]):
                passed.append(told)
                break
    return sorted(passed, key=lambda a: a.when)


def _tellings(alignment: Alignment) -> Iterator[Alignment]:
    """The repair, and the same with its last edit told the other way: where both sides are at their ends, 'one call
    too many here' and 'one missing here' cost the same in the group itself."""
    yield alignment
    gap = alignment.gaps[-1]
    mine, theirs = gap.mine, gap.theirs
    if mine is None or theirs is None or mine.op == END:
        return
    if mine.sequence == alignment.history.issued(mine.rank):
        missing = gap.kind == "delete"
        told = replace(gap, kind="insert" if missing else "delete", token=theirs if missing else mine)
        yield replace(alignment, gaps=(*alignment.gaps[:-1], told))


def completes(
    programs: dict[int, RankProgram], histories: list[GroupHistory], ended: frozenset[int], repairs: list[Alignment]
) -> bool:
    """Does every call that was issued complete with those repairs, at most one for each group?"""
    stage = _Stage(programs, histories, ended, {id(a.history): a for a in repairs})
    return stage.play()


@dataclass
class _Stage:
    """All actors, and who has a part in which group."""

    programs: dict[int, RankProgram]
    histories: list[GroupHistory]
    ended: frozenset[int]
    repairs: dict[int, Alignment]
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

    def play(self) -> bool:
        """Let every meeting take place that can. True if nobody is left waiting."""
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
        """Everybody whom the meeting needs."""
        place, number = slot
        if isinstance(number, tuple):
            return [self.actors[rank] for rank in number if rank in self.actors]
        history = self.histories[place]
        if place not in self._casts:
            self._casts[place] = {self.actors[rank]: rank for rank in history.members if rank in self.actors}
        if place in self.edits:
            return list(self._casts[place])
        # In a group without edits, what a rank has issued and does not wait in is behind it.
        return [
            actor for actor, rank in self._casts[place].items() if slot in actor.kinds or history.issued(rank) < number
        ]

    def _same(self, rank: int, program: RankProgram) -> Hashable:
        """What is equal for ranks that play one part."""
        return (
            rank in self.ended,
            tuple(id(gap) for edits in self.edits.values() for gap in edits.get(rank, ())),
            tuple(id(tokens) for h in self.histories if (tokens := h.tokens.get(rank)) is not None),
            _message(rank, program),
            () if program.journal.calls else tuple(p for p, edits in self.edits.items() if rank in edits),
        )

    def _part(self, rank: int, program: RankProgram) -> _Actor:
        """What the rank still issues."""
        entries: list[tuple[int, Slot, Hashable]] = []
        extra: set[Slot] = set()
        alive = rank not in self.ended
        edited = [place for place, edits in self.edits.items() if rank in edits]
        for place in edited:
            history, gaps = self.histories[place], self.edits[place][rank]
            kept, inserted = _renumbered(history.tokens.get(rank, []), gaps, _start(self.repairs[id(history)]))
            revived = any(gap.kind == "delete" and gap.token.op == END for gap in gaps)
            alive = (alive or revived) and not any(gap.kind == "insert" and gap.token.op == END for gap in gaps)
            entries += [(token.order, (place, number), _kind(token)) for token, number in kept]
            extra |= {(place, number) for number in inserted}
        # Several at once are asynchronous and hold up nobody.
        for token in program.pending if len(program.pending) < 2 else ():
            place = self.index.get(token.group, -1)
            if place >= 0 and place not in edited:
                entries.append((token.order, (place, token.sequence), _kind(token)))
        message = _message(rank, program)
        if message is not None:
            entries.append((len(program.journal.calls), (-1, message), "message"))
        entries.sort(key=lambda entry: entry[0])
        return _Actor([e[1] for e in entries], {e[1]: e[2] for e in entries}, frozenset(extra), alive)


def _message(rank: int, program: RankProgram) -> tuple[int, int] | None:
    """(sender, receiver) of the one message that the rank waits for."""
    points = [p for p in program.journal.point_to_points if not p.completed and p.peer >= 0]
    if len(points) != 1:
        return None
    return (rank, points[0].peer) if message_way(points[0].op) == "send" else (points[0].peer, rank)


def _plays(actor: _Actor, slot: Slot, kind: Hashable) -> bool:
    """Does the actor take part in the meeting now?"""
    if actor.next == slot:
        return actor.kinds[slot] == kind
    if slot in actor.places:
        return actor.places[slot] < actor.at
    return slot in actor.extra or (actor.next is None and actor.alive)


def _start(repair: Alignment) -> int:
    """The number where the first edit of the group stands."""
    numbers = [t.sequence for gap in repair.gaps for t in (gap.mine, gap.theirs) if t is not None]
    return min(numbers, default=0)


def _renumbered(tokens: list[Token], gaps: list[Gap], start: int) -> tuple[list[tuple[Token, int]], list[int]]:
    """The rank's calls from ``start`` on with the numbers they have after its edits, and those of inserted calls."""
    deleted = {gap.token.sequence for gap in gaps if gap.kind == "delete"}
    before = [gap.mine for gap in gaps if gap.kind == "insert"]
    inserted = [token.sequence if token is not None and token.op != END else None for token in before]
    last = min((g.mine.sequence for g in gaps if g.mine and g.kind == "insert" and g.token.op == END), default=None)
    kept: list[tuple[Token, int]] = []
    added: list[int] = []
    shift = 0
    for token in tokens:
        if token.sequence < start or (last is not None and token.sequence >= last):
            continue
        for _ in range(inserted.count(token.sequence)):
            added.append(token.sequence + shift)
            shift += 1
        if token.sequence in deleted:
            shift -= 1
        else:
            kept.append((token, token.sequence + shift))
    end = (tokens[-1].sequence if tokens else 0) + shift + 1
    added += range(end, end + inserted.count(None))
    return kept, added


def _kind(token: Token) -> Hashable:
    return token.op, token.sizes
