"""Journals with equal calls, folded before anything is done for each rank: of thousands of ranks only some behave
differently, and only those differences cost time."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import chain
from operator import attrgetter

from hangdoc.model.journal import Call, Journal
from hangdoc.model.process import Stack

# What makes two calls equal. Times are each rank's own; the members of its groups too (a mesh gives every row a
# group of the same name), so one recording may serve many groups.
_COLUMNS = tuple(map(attrgetter, ("sequence", "group", "completed", "state")))
_arguments = attrgetter("op", "input_sizes", "input_dtypes", "root")
# Calls of one number that completed had operations and arguments that fit, or the backend would not have let them.
_LAST = 16
"""Calls at the end whose arguments are compared; chosen by hand."""
_stack = attrgetter("stack")
_thread = attrgetter("thread_id")
_group = attrgetter("group")
_all_but_times = attrgetter(*(name for name in Call.__match_args__ if name not in ("created_ns", "started_ns")))
_place = attrgetter("line", "function", "file")


class Recording:
    """The calls that some ranks have in common, by their places in ``Journal.calls``."""

    __slots__ = (
        "_compared",
        "_journal",
        "_places",
        "by_group",
        "completed",
        "contents",
        "pending",
        "runs_ahead",
        "stacks",
    )

    def __init__(self, journal: Journal, contents: tuple[int, ...] = ()) -> None:
        calls = journal.calls
        self.contents = contents
        """Of a dump: a number for each call, the same for calls that differ in their times alone."""
        self.stacks = journal.stacks
        self.by_group: dict[str, list[int]] = {}
        """Group name → places, in order of their numbers."""
        for place, call in enumerate(calls):
            self.by_group.setdefault(call.group, []).append(place)
        for places in self.by_group.values():
            places.sort(key=lambda place: calls[place].sequence)
        self.pending = tuple(place for place, call in enumerate(calls) if not call.completed)
        self.completed = frozenset({call.group for call in calls if call.completed})
        """The groups in which a call has completed."""
        self.runs_ahead = any(call.state for call in calls)
        """A device executes the calls: the program has issued more of them than the device has come to."""
        self._places = list(map(_stack, calls))
        self._journal = journal
        self._compared: tuple[list[list[object]], list[object], list[object]] | None = None
        """Made when the first journal is compared: of a mesh every rank may have a recording of its own."""

    @property
    def issued_from(self) -> list[Stack]:
        """The stacks of the calls, each once."""
        return [self.stacks[index] for index in dict.fromkeys(self._places) if 0 <= index < len(self.stacks)]

    def fits(self, journal: Journal) -> bool:
        """Are the journal's calls these? Their number and stack indices are known to be equal."""
        if self._compared is None:
            mine = self._journal
            columns = [list(map(column, mine.calls)) for column in _COLUMNS]
            self._compared = columns, self._open_arguments(mine), _frames(mine)
        columns, arguments, frames = self._compared
        return (
            all(list(map(column, journal.calls)) == own for column, own in zip(_COLUMNS, columns, strict=True))
            and self._open_arguments(journal) == arguments
            and (journal.stacks is self.stacks or _frames(journal) == frames)
        )

    def _open_arguments(self, journal: Journal) -> list[object]:
        """What was asked of the calls whose arguments may not have fitted: those that wait, and the latest."""
        calls = journal.calls
        return [_arguments(calls[place]) for place in self.pending] + list(map(_arguments, calls[-_LAST:]))


def _frames(journal: Journal) -> list[object]:
    return [*map(len, journal.stacks), *map(_place, chain.from_iterable(journal.stacks))]


def record(journals: Iterable[tuple[int, Journal]]) -> dict[int, Recording]:
    """Rank → its recording, one object for all ranks whose calls are equal."""
    found: dict[int, Recording] = {}
    alike: dict[Hashable, list[Recording]] = {}
    same: dict[Hashable, Recording] = {}
    contents = _Contents()
    for rank, journal in journals:
        # Dumps of a folder share the calls that they have in common, and number their threads alike.
        numbers = contents.of(journal.calls) if journal.source == "dump" else ()
        recording = same.get((id(journal.stacks), numbers)) if numbers else None
        if recording is None:
            groups = tuple(dict.fromkeys(map(_group, journal.calls)))
            key = (tuple(map(_stack, journal.calls)), groups, _threads(journal.calls))
            candidates = alike.setdefault(key, [])
            recording = next((r for r in candidates if r.fits(journal)), None)
            if recording is None:
                recording = Recording(journal, numbers)
                candidates.append(recording)
            if numbers:
                same[id(journal.stacks), numbers] = recording
        found[rank] = recording
    return found


class _Contents:
    """Numbers for calls, of which those that differ in their times alone have the same."""

    def __init__(self) -> None:
        self._by_call: dict[int, int] = {}
        """By identity: the calls live as long as the job."""
        self._by_content: dict[Hashable, int] = {}

    def of(self, calls: tuple[Call, ...]) -> tuple[int, ...]:
        """The numbers of these calls."""
        try:
            return tuple(map(self._by_call.__getitem__, map(id, calls)))
        except KeyError:
            for call in calls:
                if id(call) not in self._by_call:
                    number = self._by_content.setdefault(_all_but_times(call), len(self._by_content))
                    self._by_call[id(call)] = number
            return tuple(map(self._by_call.__getitem__, map(id, calls)))


def _threads(calls: tuple[Call, ...]) -> tuple[int, ...]:
    """Which thread issued each call, numbered as they appear; () where there is only one."""
    threads = dict.fromkeys(map(_thread, calls))
    if len(threads) < 2:
        return ()
    numbers = {thread: number for number, thread in enumerate(threads)}
    return tuple(numbers[call.thread_id] for call in calls)
