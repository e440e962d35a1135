"""Lines of many ranks → one stream in which what several ranks say stands once, with their numbers.

Pure: who says what comes in with the time, and what is due goes out. Nothing is lost, each rank's lines keep their
order, and none waits longer than the limit for others to say the same.

What waits is a list of groups, in the order in which they will be shown. A rank that says a line joins a group with
that line behind the last one it is in, and begins a new one at the end if there is none. Example, with three ranks:

    0: load   0: epoch 1   1: epoch 1   2: epoch 1     →   [0] load, [0-2] epoch 1

If rank 1 is heard first, 'load' comes behind 'epoch 1'. As rank 0 joins that group, what it has said alone since moves
before it, which is where it belongs for rank 0 and where the other ranks have no say.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass, field
from itertools import takewhile

from hangdoc.sidecar.logs.lines import Line

LIMIT_SECONDS = 0.2
"""How long a line waits for other ranks to say the same. Judgement: ranks that leave a collective together print within
milliseconds, and a person takes less than 0.3 s, with the time to notice the line, for at once."""
MOST_WAITING = 1000
"""Groups that wait at most; the first go out early. Bounds the memory and the time for each line."""
_EARLY = 100
"""Groups that go out early at once."""
_MOST_LOOKED_AT = 16
"""Groups with the same line that are looked at for one to join: a rank that says one thing all the time is alone."""
_LONG_AGO = float("-inf")


@dataclass(frozen=True, slots=True)
class Said:
    """A line of the stream. ``ranks``: who said it, sorted; none for the command itself."""

    ranks: tuple[int, ...]
    text: str
    error: bool = False
    key: str = field(default="", compare=False)
    """As of ``Line``."""


@dataclass(slots=True, eq=False)
class _Group:
    line: Line
    born: float
    order: float
    """Its place among those that wait."""
    ranks: list[int] = field(default_factory=list)


def _order(group: _Group) -> float:
    return group.order


class Folding:
    """What waits to be shown. Times are seconds of any one clock, never going back."""

    def __init__(self, limit: float = LIMIT_SECONDS) -> None:
        self._limit = limit
        self._expected: frozenset[int] = frozenset()
        self._waiting: list[_Group] = []
        self._by_key: dict[str, list[_Group]] = {}
        """Of those that may be joined, in their order."""
        self._of_rank: dict[int, deque[_Group]] = {}
        self._shared: dict[int, _Group] = {}
        """The last group that the rank is in with others; what it has said since is its own and can be moved."""
        self._early: list[Said] = []

    def expect(self, ranks: frozenset[int]) -> None:
        """A line that all of these have said waits for nobody else."""
        self._expected = ranks

    def add(self, rank: int | None, line: Line, now: float) -> None:
        """``rank`` says ``line``; None: the command itself."""
        group = self._joinable(rank, line) if rank is not None and not line.error else None
        if group is None:
            group = _Group(line, now, self._waiting[-1].order + 1 if self._waiting else 0.0)
            self._waiting.append(group)
            if rank is not None and not line.error:
                self._by_key.setdefault(line.key, []).append(group)
        if rank is not None:
            group.ranks.append(rank)
            self._of_rank.setdefault(rank, deque()).append(group)
            self._note_shared(group)
        if len(self._waiting) > MOST_WAITING:
            self._early += self._release(_EARLY)

    def is_full(self) -> bool:
        """True if lines go out early: better take them now."""
        return bool(self._early)

    def take(self, now: float) -> list[Said]:
        """The lines that are due, or that nobody else will say."""
        due = max((i + 1 for i, each in enumerate(self._waiting) if each.born + self._limit <= now), default=0)
        while due < len(self._waiting) and self._is_complete(self._waiting[due]):
            due += 1
        early, self._early = self._early, []
        return early + self._release(due)

    def flush(self) -> list[Said]:
        """Everything that waits."""
        early, self._early = self._early, []
        return early + self._release(len(self._waiting))

    def due(self) -> float | None:
        """When the next line must be taken at the latest; None if none waits."""
        return min((each.born for each in self._waiting), default=-self._limit) + self._limit if self._waiting else None

    def _joinable(self, rank: int, line: Line) -> _Group | None:
        """The group that the rank's line belongs to, its own lines moved out of the way; None if there is none."""
        same = self._by_key.get(line.key)
        if not same:
            return None
        own = self._of_rank.get(rank)
        if not own:
            return same[0]
        behind = bisect_right(same, own[-1].order, key=_order)
        if behind < len(same):
            return same[behind]
        fixed = self._shared[rank].order if rank in self._shared else _LONG_AGO
        first = bisect_right(same, fixed, key=_order)
        for group in same[first : first + _MOST_LOOKED_AT]:
            if group.ranks != [rank]:
                self._move(_behind(group, own), group)
                return group
        return None

    def _note_shared(self, group: _Group) -> None:
        for rank in group.ranks if len(group.ranks) > 1 else ():
            if rank not in self._shared or self._shared[rank].order < group.order:
                self._shared[rank] = group

    def _move(self, groups: list[_Group], before: _Group) -> None:
        """Put the groups, which are in order, right before another one."""
        for group in groups:
            del self._waiting[self._place(group)]
        at = self._place(before)
        self._waiting[at:at] = groups
        low = self._waiting[at - 1].order if at else before.order - len(groups) - 1
        step = (before.order - low) / (len(groups) + 1)
        for number, group in enumerate(groups, start=1):
            group.order = low + number * step
        if step < 1e-6:
            for number, group in enumerate(self._waiting):
                group.order = float(number)
        for key in {group.line.key for group in groups}:
            self._by_key.get(key, []).sort(key=_order)

    def _place(self, group: _Group) -> int:
        return bisect_left(self._waiting, group.order, key=_order)

    def _is_complete(self, group: _Group) -> bool:
        return not group.ranks or group.line.error or self._expected.issubset(group.ranks)

    def _release(self, count: int) -> list[Said]:
        released, self._waiting = self._waiting[:count], self._waiting[count:]
        for group in released:
            group.order = _LONG_AGO
            for rank in group.ranks:
                self._of_rank[rank].popleft()
            same = self._by_key.get(group.line.key)
            if same and same[0] is group:
                del same[0]
                if not same:
                    del self._by_key[group.line.key]
        return [
            Said(tuple(sorted(group.ranks)), group.line.text, group.line.error, group.line.key) for group in released
        ]


def _behind(group: _Group, own: deque[_Group]) -> list[_Group]:
    """Those of ``own`` that come after the group, in their order."""
    return list(takewhile(lambda each: each.order > group.order, reversed(own)))[::-1]
