"""The calls of a rank, without a copy of what others issue as well.

Ranks of a mesh issue the same calls in groups of other names. Example: rank 0 issues tp_0, tp_0, dp_0 and rank 9 tp_1,
tp_1, dp_1 → the rows of tp and of dp are kept once, and so is their order; a rank has the names.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import repeat
from operator import attrgetter
from typing import overload

from hangdoc.model.journal import Call

_FIELDS = Call.__match_args__


class Rows:
    """The calls that ranks have in common in a group, whatever it is called: the names in them mean nothing.

    Like the other classes here, one object for all ranks, that is compared by identity.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        self.calls = calls

    def __len__(self) -> int:
        return len(self.calls)

    @cached_property
    def created_ns(self) -> list[int]:
        """When they were issued."""
        return [call.created_ns for call in self.calls]

    @cached_property
    def timed(self) -> bool:
        """The recorder noticed when kernels began."""
        return any(call.state == "started" or call.started_ns for call in self.calls)

    @cached_property
    def columns(self) -> list[list[object]]:
        """Their fields, one list for each."""
        return [list(map(attrgetter(name), self.calls)) for name in _FIELDS]


class Order:
    """How the calls of several groups follow each other. Example: groups 0, 0, 1, 0 → places (0, 1, 3), (2,)."""

    def __init__(self, groups: Sequence[int]) -> None:
        """``groups``: for each call the number of its group."""
        self.groups = groups
        self.places = [array("I") for _ in range(max(groups, default=-1) + 1)]
        """For each group, where its calls are."""
        self.within = array("I")
        """For each call, how many of its group are before it."""
        for place, group in enumerate(groups):
            self.within.append(len(self.places[group]))
            self.places[group].append(place)


class GroupCalls:
    """Rows as the calls of a group of that name. They are made when somebody asks for them: few are."""

    def __init__(self, group: str, rows: Rows) -> None:
        self.group = group
        self.rows = rows
        self._made: dict[int, Call] = {}

    def __getitem__(self, at: int) -> Call:
        if at not in self._made:
            row = self.rows.calls[at]
            self._made[at] = row if row.group == self.group else replace(row, group=self.group)
        return self._made[at]

    @cached_property
    def all(self) -> list[Call]:
        """All of them. A million through their constructor would take eight times as long."""
        calls = list(map(object.__new__, repeat(Call, len(self.rows))))
        for name, column in zip(_FIELDS, self.rows.columns, strict=True):
            values = repeat(self.group) if name == "group" else column
            deque(map(getattr(Call, name).__set__, calls, values), maxlen=0)
        return calls


class SharedCalls(Sequence[Call]):
    """The calls of one rank, in the order they were issued; equal to a tuple of them."""

    __slots__ = ("order", "parts")

    def __init__(self, parts: tuple[GroupCalls, ...], order: Order) -> None:
        self.parts = parts
        self.order = order

    @classmethod
    def of(cls, calls: Sequence[Call]) -> SharedCalls:
        """The same calls, of a rank that shares none."""
        if isinstance(calls, cls):
            return calls
        of_group: dict[str, list[Call]] = {}
        for call in calls:
            of_group.setdefault(call.group, []).append(call)
        number = {name: place for place, name in enumerate(of_group)}
        parts = tuple(GroupCalls(name, Rows(some)) for name, some in of_group.items())
        return cls(parts, Order([number[call.group] for call in calls]))

    @property
    def rows(self) -> Iterator[Call]:
        """The calls, in which the names of groups mean nothing."""
        following = [iter(part.rows.calls).__next__ for part in self.parts]
        return (following[group]() for group in self.order.groups)

    @property
    def created_ns(self) -> list[int]:
        """When they were issued, group after group."""
        return [created_ns for part in self.parts for created_ns in part.rows.created_ns]

    def row(self, place: int) -> Call:
        """The one of them at that place."""
        return self.parts[self.order.groups[place]].rows.calls[self.order.within[place]]

    def __len__(self) -> int:
        return len(self.order.groups)

    @overload
    def __getitem__(self, place: int) -> Call: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Call, ...]: ...
    def __getitem__(self, place: int | slice) -> Call | tuple[Call, ...]:
        if isinstance(place, slice):
            return tuple(map(self._at, range(*place.indices(len(self)))))
        return self._at(range(len(self))[place])

    def __iter__(self) -> Iterator[Call]:
        following = [iter(part.all).__next__ for part in self.parts]
        return (following[group]() for group in self.order.groups)

    def _at(self, place: int) -> Call:
        return self.parts[self.order.groups[place]][self.order.within[place]]

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, (tuple, SharedCalls)) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))
