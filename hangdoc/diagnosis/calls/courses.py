"""What ranks issue in common, whatever their groups are called: of thousands of ranks of a mesh only some differ.

Example: rank 0 issues tp_0, tp_0, dp_0 and rank 9 tp_1, tp_1, dp_1, from the same lines → one course with two parts.
What follows from the calls alone is computed once for each course.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from functools import cached_property
from itertools import compress, count
from operator import attrgetter, not_

from hangdoc.diagnosis.bounds import TRIED
from hangdoc.model.journal import Call
from hangdoc.model.shared_calls import Order, Rows, SharedCalls

_TIMES = ("created_ns", "started_ns", "completed_ns", "duration_ns")
_but_group_and_times = attrgetter(*(name for name in Call.__match_args__ if name not in ("group", *_TIMES)))
_arguments = attrgetter("op", "input_sizes", "input_dtypes", "root")
# Calls of one number that completed had operations and arguments that fit, or the backend would not have let them.
_sequence = attrgetter("sequence")
_completed = attrgetter("completed")
_state = attrgetter("state")


class Track:
    """Where the calls of one group are in a program, in order of their numbers. Equal ones are one object."""

    __slots__ = ("numbers", "places")

    def __init__(self, places: Sequence[int], numbers: Sequence[int]) -> None:
        self.places = places
        self.numbers = numbers

    def place_of(self, number: int) -> int | None:
        """Where the call with that number is."""
        at = bisect_left(self.numbers, number)
        return self.places[at] if at < len(self.numbers) and self.numbers[at] == number else None


class Tracks:
    """All tracks. Ranks of a mesh issue calls in the same order, in groups of other names."""

    def __init__(self) -> None:
        self._known: dict[Hashable, list[Track]] = {}
        self._tracks: dict[Hashable, Track] = {}

    def of(self, groups: Sequence[int], numbers: Sequence[int]) -> list[Track]:
        """That of each group. ``groups``: the number of each call's group; ``numbers``: each call's number in it."""
        key = tuple(groups), tuple(numbers)
        if key not in self._known:
            places: list[list[int]] = [[] for _ in range(max(groups, default=-1) + 1)]
            for place, group in enumerate(groups):
                places[group].append(place)
            self._known[key] = [self._track(own, numbers) for own in places]
        return self._known[key]

    def _track(self, places: list[int], numbers: Sequence[int]) -> Track:
        ordered = tuple(sorted(places, key=numbers.__getitem__))
        key = ordered, tuple(map(numbers.__getitem__, ordered))
        return self._tracks.setdefault(key, Track(*key))


class Course:
    """The calls that ranks have in common."""

    def __init__(self, calls: SharedCalls, contents: tuple[int, ...], tracks: Tracks) -> None:
        """``contents``: a number for the calls of each group, the same for calls that differ in their times alone."""
        self.calls = list(calls.rows)
        """In which the names of groups and a rank's own times mean nothing."""
        self.groups = tuple(calls.order.groups)
        """For each call the number of its group, as they appear."""
        self.contents = contents
        self.tracks = tracks.of(self.groups, tuple(map(_sequence, self.calls)))
        self.pending = tuple(compress(count(), map(not_, map(_completed, self.calls))))
        """The places of the calls that have not completed."""
        self.completed = frozenset(compress(self.groups, map(_completed, self.calls)))
        """The groups in which a call has completed."""
        self.runs_ahead = any(map(_state, self.calls))
        """A device executes the calls."""
        self.stacks = tuple(map(attrgetter("stack"), self.calls))
        self.threads = numbered_threads(self.calls)
        self._alike: dict[Course, bool] = {}

    def fits(self, other: Course) -> bool:
        """Are these calls the same, as far as it matters for a diagnosis? Their stacks are known to be the same."""
        if other not in self._alike:
            self._alike[other] = self._compared == other._compared
        return self._alike[other]

    @cached_property
    def _compared(self) -> tuple[object, ...]:
        columns = [list(map(column, self.calls)) for column in (_sequence, _completed, _state)]
        return self.groups, columns, open_arguments(self.calls, self.pending)

    @cached_property
    def pending_of(self) -> dict[int, list[int]]:
        """Group → the numbers of its calls that have not completed, in their order."""
        found: dict[int, list[int]] = {}
        for place in self.pending:
            found.setdefault(self.groups[place], []).append(self.calls[place].sequence)
        return {group: sorted(numbers) for group, numbers in found.items()}


def open_arguments(calls: Sequence[Call], pending: Sequence[int]) -> list[object]:
    """What was asked of the calls whose arguments may not have fitted: those that wait, and the latest."""
    return [_arguments(calls[place]) for place in pending] + list(map(_arguments, calls[-TRIED:]))


def numbered_threads(calls: Sequence[Call]) -> tuple[int, ...]:
    """Which thread issued each call, numbered as they appear; () where there is only one."""
    threads = dict.fromkeys(map(attrgetter("thread_id"), calls))
    if len(threads) < 2:
        return ()
    numbers = {thread: number for number, thread in enumerate(threads)}
    return tuple(numbers[call.thread_id] for call in calls)


class Courses:
    """All courses of a job."""

    def __init__(self, tracks: Tracks) -> None:
        self._tracks = tracks
        self._by_rows: dict[tuple[Order, tuple[Rows, ...]], Course] = {}
        self._by_content: dict[Hashable, Course] = {}
        self._contents: dict[Rows, int] = {}
        self._content_of_rows: dict[tuple[int, ...], int] = {}
        self._content_of_call: dict[Hashable, int] = {}

    def of(self, calls: SharedCalls) -> Course:
        """That of these calls."""
        key = calls.order, tuple([part.rows for part in calls.parts])
        if key not in self._by_rows:
            contents = tuple(map(self._content, key[1]))
            same = tuple(calls.order.groups), contents
            if same not in self._by_content:
                self._by_content[same] = Course(calls, contents, self._tracks)
            self._by_rows[key] = self._by_content[same]
        return self._by_rows[key]

    def _content(self, rows: Rows) -> int:
        if rows not in self._contents:
            known = self._content_of_call
            each = tuple([known.setdefault(_but_group_and_times(call), len(known)) for call in rows.calls])
            self._contents[rows] = self._content_of_rows.setdefault(each, len(self._content_of_rows))
        return self._contents[rows]
