"""The smallest repair of all calls and messages together: what to insert, delete or replace so that all can go on.

The calls of a group are one channel, the messages of a (group, sender, receiver, tag) are another. What has completed
fits, and each channel is in order; so it is enough to know how many steps of each channel a rank has issued, and what
it waits in. A repair is an edit distance over all channels of all ranks at once (Needleman and Wunsch 1970, with free
ends: a rank that waits for nothing may issue any further step), and it has to end every wait, as found by playing the
steps (as MUST finds deadlocks of MPI calls: Hilbrich et al., SC 2012). Edits are tried where ranks wait: an edit
further back changes the same count, and which of its places is the likeliest is for the alignment of the group.

Two groups in opposite order need a *move*: an insertion of a call that the rank makes anyway, later. In a thread that
waits, the later call is not there yet, so a move looks like an insertion; ``own_order`` tells whose it is. Where a
device executes the calls the later one has been issued, and the edit is a move. Threads have no order among each other.

Example: 0 waits in A and has not issued B, 1 waits in B and has not issued A → insert B on 0, delete A on 0, and the
same on 1 with A and B: four repairs of one edit each.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from hangdoc.diagnosis.components import components

Channel = Hashable

GAP = 2
"""An insertion, a deletion or a move: the unit, on one rank. That a move is one edit, and not two, is the edit distance
with moves (Cormode and Muthukrishnan 2007)."""
EXCHANGE = 3
"""A replacement: less than the two edits that it is made of, and more than one."""
_MOST_EDITS = 4
"""Of one repair, each on ranks that wait for the same; chosen by hand: more faults at once are not one story."""
_MOST_WORK = 60_000
"""Ranks that are played, over all repairs that are tried; chosen by hand: some 0.3 s. Where it is not enough, nothing
is said: of some of the smallest repairs nobody would know that there are others."""


@dataclass(frozen=True, slots=True)
class Step:
    """A call or message that a rank waits in. ``number``: which of the channel's it is, from 1."""

    channel: Channel
    number: int
    kind: Hashable = ""
    """What has to agree on all sides."""
    lane: int = 0
    """The thread."""

    def is_after(self, other: Step) -> bool:
        """True if it is a later one of the same channel."""
        return self.channel == other.channel and self.number > other.number


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit of these ranks: a run of steps at one place of their programs, so that an exchange is one edit (gaps
    whose length costs nothing: Gotoh 1982)."""

    kind: str
    """'delete', 'insert', 'replace' or 'move'."""
    ranks: tuple[int, ...]
    deleted: tuple[Step, ...] = ()
    """Of what they wait in."""
    inserted: tuple[Channel, ...] = ()
    """One step of each, before what they wait in; of a move they are there already, later."""

    def of(self, alike: Mapping[int, tuple[int, ...]]) -> Edit:
        """The same edit of all ranks that are like these."""
        return replace(self, ranks=tuple(sorted(each for rank in self.ranks for each in alike[rank])))

    @property
    def cost(self) -> int:
        """Over all its ranks."""
        return (EXCHANGE if self.kind == "replace" else GAP) * len(self.ranks)


@dataclass(frozen=True, slots=True)
class Repair:
    """Edits with which every wait ends."""

    edits: tuple[Edit, ...]

    @property
    def cost(self) -> int:
        """In halves of an insertion."""
        return sum(edit.cost for edit in self.edits)

    @property
    def culprits(self) -> tuple[int, ...]:
        """The ranks that it changes."""
        return tuple(sorted({rank for edit in self.edits for rank in edit.ranks}))


@dataclass
class Stage:
    """Where the ranks stand."""

    ends: Mapping[Channel, tuple[int, ...]]
    """Channel → the ranks that a step of it needs."""
    issued: dict[tuple[int, Channel], int]
    """How many steps a rank has issued; 0 where it is not named."""
    under_way: dict[int, tuple[Step, ...]]
    """Rank → what it waits in, in the order of issue."""
    either: frozenset[Channel] = frozenset()
    """Channels of which one other rank is enough: a message from anyone."""
    ended: frozenset[int] = frozenset()
    """They issue nothing any more."""
    in_order: frozenset[int] = frozenset()
    """A device executes their steps, each after those before it."""
    unknown: frozenset[int] = frozenset()
    """They may have issued anything."""
    lanes: Mapping[tuple[int, Channel], int] = field(default_factory=dict)
    """The thread that issues a rank's steps of a channel, where one has."""

    _lacking: dict[Hashable, tuple[int, ...]] = field(default_factory=dict, init=False)
    """Ranks that wait in one step wait for the same others, which are looked up once."""

    def played(self) -> Stage:
        """What is left when all that can end has ended. A wait is looked at again when a rank that it lacks goes on."""
        left = replace(self, under_way={rank: steps for rank, steps in self.under_way.items() if steps})
        waiting: dict[Hashable, list[tuple[int, Step]]] = {}
        for rank, steps in left.under_way.items():
            for step in self._open(rank, steps):
                waiting.setdefault(self._same(rank, step), []).append((rank, step))
        lacked_by: dict[int, list[Hashable]] = {}
        todo = list(waiting)
        while todo:
            what = todo.pop()
            if what not in waiting:
                continue
            lacking = left._lacked(*waiting[what][0])
            for rank in lacking:
                lacked_by.setdefault(rank, []).append(what)
            for rank, step in waiting.pop(what) if not lacking else ():
                kept = tuple(each for each in left.under_way.pop(rank, ()) if each != step)
                todo += lacked_by.pop(rank, ())
                if kept:
                    left.under_way[rank] = kept
                if kept and rank in self.in_order:
                    following = self._same(rank, kept[0])
                    waiting.setdefault(following, []).append((rank, kept[0]))
                    todo.append(following)
        return left

    def _same(self, rank: int, step: Step) -> Hashable:
        """What is equal for ranks that wait for the same others."""
        return step.channel, step.number, step.kind, rank if step.channel in self.either else None

    def _lacked(self, rank: int, step: Step) -> tuple[int, ...]:
        """Ranks of which one has to go on before the step can end."""
        if step.channel in self.either:
            return self.lacking(rank, step)
        return next(((each,) for each in self.ends[step.channel] if not self._provides(each, step)), ())

    def _open(self, rank: int, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        return steps[:1] if rank in self.in_order else steps

    def lacking(self, rank: int, step: Step) -> tuple[int, ...]:
        """The ranks without which the step cannot end, as things stand."""
        if step.channel in self.either:
            others = [each for each in self.ends[step.channel] if each != rank]
            lacking = tuple(each for each in others if not self._provides(each, step))
            return () if len(lacking) < len(others) else lacking
        key = step.channel, step.number, step.kind
        if key not in self._lacking:
            ends = self.ends[step.channel]
            self._lacking[key] = tuple(each for each in ends if not self._provides(each, step))
        return self._lacking[key]

    def _provides(self, rank: int, step: Step) -> bool:
        if rank in self.unknown:
            return True
        steps = self.under_way.get(rank, ())
        if self.issued.get((rank, step.channel), 0) < step.number:
            lane = self.lanes.get((rank, step.channel))
            return rank not in self.ended and all(lane is not None and each.lane != lane for each in steps)
        for at, each in enumerate(steps):
            if each.channel == step.channel and each.number == step.number:
                return each.kind == step.kind and (at == 0 or rank not in self.in_order)
        return True

    def edited(self, edit: Edit) -> Stage:
        """The same after an edit."""
        issued, under_way = dict(self.issued), dict(self.under_way)
        for rank in edit.ranks:
            steps = list(under_way.get(rank, ()))
            lane = steps[0].lane if steps else 0
            for gone in reversed(edit.deleted):
                steps = [_shifted(each, -1) if each.is_after(gone) else each for each in steps if each != gone]
                issued[rank, gone.channel] = max(0, issued.get((rank, gone.channel), 0) - 1)
            for channel in reversed(edit.inserted):
                later = [each for each in steps if each.channel == channel]
                if edit.kind == "move" and later:
                    steps.remove(later[0])
                    steps.insert(0, later[0])
                    continue
                issued[rank, channel] = issued.get((rank, channel), 0) + 1
                number = min((each.number for each in later), default=issued[rank, channel])
                steps = [_shifted(each, 1) if each.channel == channel else each for each in steps]
                lane = self.lanes.get((rank, channel), lane)
                steps.insert(0, Step(channel, number, self._kind(channel, number), lane))
            under_way[rank] = tuple(steps)
        ended = self.ended - set(edit.ranks) if edit.kind == "insert" else self.ended
        return replace(self, issued=issued, under_way=under_way, ended=ended)

    def _kind(self, channel: Channel, number: int) -> Hashable:
        """What the others wait for in that step."""
        ends = (self.under_way.get(rank, ()) for rank in self.ends[channel])
        return next((s.kind for steps in ends for s in steps if (s.channel, s.number) == (channel, number)), "")

    def edits(self) -> Iterator[Edit]:
        """Those that may help ranks which wait for each other and for nobody else, on all that wait in the same.

        Whatever ends all waits has to edit one of these: their waits lead nowhere else.
        """
        alike: dict[tuple[Step, ...], list[int]] = {}
        for rank, steps in self.under_way.items():
            alike.setdefault(steps, []).append(rank)
        waits = {steps: self._waits(ranks[0]) for steps, ranks in alike.items()}
        ahead = {
            steps: {self.under_way[r] for lacking in each for r in lacking if r in self.under_way}
            for steps, each in waits.items()
        }
        found: dict[Edit, None] = {}
        knot = next(components(ahead))
        for steps in (each for each in ahead if each in knot):
            ranks = tuple(alike[steps])
            for lacking, run in waits[steps].items():
                found[Edit("delete", ranks, run)] = None
                channels = tuple(step.channel for step in run)
                for lacked in self._together(lacking, alone=self.either.issuperset(channels)):
                    found.update(dict.fromkeys(self._provisions(lacked, channels)))
        yield from found

    def _waits(self, rank: int) -> dict[tuple[int, ...], tuple[Step, ...]]:
        """The ranks that are lacking → in which of the rank's steps."""
        found: dict[tuple[int, ...], tuple[Step, ...]] = {}
        for step in self._open(rank, self.under_way[rank]):
            lacking = self.lacking(rank, step)
            found[lacking] = (*found.get(lacking, ()), step)
        return found

    def _together(self, ranks: tuple[int, ...], *, alone: bool) -> list[tuple[int, ...]]:
        """The ranks, those that wait in the same together."""
        found: dict[Hashable, list[int]] = {}
        for rank in ranks:
            found.setdefault(rank if alone else self.under_way.get(rank, rank), []).append(rank)
        return [tuple(each) for each in found.values()]

    def _provisions(self, ranks: tuple[int, ...], channels: tuple[Channel, ...]) -> Iterator[Edit]:
        """What gives these ranks' steps of the channels to those that wait for them."""
        steps = self.under_way.get(ranks[0], ())
        later = ranks[0] in self.in_order and {step.channel for step in steps[1:]} >= set(channels)
        yield Edit("move" if later else "insert", ranks, (), channels)
        if steps:
            yield Edit("replace", ranks, next(iter(self._waits(ranks[0]).values())), channels)


def smallest_repairs(stage: Stage) -> list[Repair]:
    """All of the least cost; [] where nothing waits for good, or no few edits are enough."""
    stuck, alike = _folded(stage)
    stuck = stuck.played()
    if not stuck.under_way:
        return []
    work, numbers = _MOST_WORK, count()
    queue: list[tuple[int, int, tuple[Edit, ...], Stage]] = [(0, next(numbers), (), stuck)]
    found: dict[frozenset[Edit], Repair] = {}
    tried: set[frozenset[Edit]] = set()
    while queue:
        cost, _, edits, here = heapq.heappop(queue)
        if found and cost > next(iter(found.values())).cost:
            break
        if not here.under_way:
            found[frozenset(edits)] = Repair(tuple(edit.of(alike) for edit in edits))
            continue
        for edit in here.edits() if len(edits) < _MOST_EDITS else ():
            more = frozenset((*edits, edit))
            if more in tried:
                continue
            if work <= 0:
                return []
            tried.add(more)
            work -= 1 + len(here.under_way)
            after = here.edited(edit).played()
            heapq.heappush(queue, (cost + edit.of(alike).cost, next(numbers), (*edits, edit), after))
    return list(found.values())


def _folded(stage: Stage) -> tuple[Stage, Mapping[int, tuple[int, ...]]]:
    """The stage with one rank for all that wait in the same and have issued the same; that rank → all of them."""
    everyone = {rank for ends in stage.ends.values() for rank in ends}
    if stage.either:
        return stage, {rank: (rank,) for rank in everyone}
    issued: dict[int, list[tuple[Channel, int, int | None]]] = {}
    for channel, members in stage.ends.items():
        for rank in members:
            number, lane = stage.issued.get((rank, channel), 0), stage.lanes.get((rank, channel))
            issued.setdefault(rank, []).append((channel, number, lane))
    alike: dict[Hashable, list[int]] = {}
    for rank, each in issued.items():
        kind = rank in stage.ended, rank in stage.in_order, rank in stage.unknown
        alike.setdefault((stage.under_way.get(rank), tuple(each), kind), []).append(rank)
    folded = {ranks[0]: tuple(ranks) for ranks in alike.values()}
    ends = {channel: tuple(rank for rank in members if rank in folded) for channel, members in stage.ends.items()}
    under_way = {rank: steps for rank, steps in stage.under_way.items() if rank in folded}
    return replace(stage, ends=ends, under_way=under_way), folded


def _shifted(step: Step, by: int) -> Step:
    return Step(step.channel, step.number + by, step.kind, step.lane)
