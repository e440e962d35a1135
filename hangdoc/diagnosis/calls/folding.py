"""Journals with equal calls, folded before anything is done for each rank: of thousands of ranks only some behave
differently, and only those differences cost time."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import chain, compress, count
from operator import attrgetter, not_

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
_sequence = attrgetter("sequence")
_completed = attrgetter("completed")
_state = attrgetter("state")
_thread = attrgetter("thread_id")
_group = attrgetter("group")
_all_but_times = attrgetter(*(name for name in Call.__match_args__ if name not in ("created_ns", "started_ns")))
_place = attrgetter("line", "function", "file")


class Recording:
    """The calls that some ranks have in common, by their places in ``Journal.calls``."""

    __slots__ = (
        "_compared",
        "_journal",
        "by_group",
        "completed",
        "contents",
        "pending",
        "runs_ahead",
        "stacks",
    )

    def __init__(self, journal: Journal, contents: tuple[int, ...], patterns: _Patterns) -> None:
        calls = journal.calls
        self.contents = contents
        """Of a dump: a number for each call, the same for calls that differ in their times alone."""
        self.stacks = journal.stacks
        self.by_group: dict[str, list[int]] = patterns.of(calls)
        """Group name → places, in order of their numbers."""
        self.pending = tuple(compress(count(), map(not_, map(_completed, calls))))
        self.completed = frozenset(compress(map(_group, calls), map(_completed, calls)))
        """The groups in which a call has completed."""
        self.runs_ahead = any(map(_state, calls))
        """A device executes the calls: the program has issued more of them than the device has come to."""
        self._journal = journal
        self._compared: tuple[list[list[object]], list[object], list[object]] | None = None
        """Made when the first journal is compared: of a mesh every rank may have a recording of its own."""

    @property
    def issued_from(self) -> list[Stack]:
        """The stacks of the calls, each once."""
        indices = dict.fromkeys(map(_stack, self._journal.calls))
        return [self.stacks[index] for index in indices if 0 <= index < len(self.stacks)]

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
    ways: dict[Hashable, Hashable] = {}
    contents = _Contents()
    patterns = _Patterns()
    for rank, journal in journals:
        # Dumps of a folder share the calls that they have in common, and number their threads alike.
        numbers = contents.of(journal.calls) if journal.source == "dump" else ()
        # Of a job on many hosts, ranks of equal calls share them.
        shared = id(journal.stacks), numbers or id(journal.calls)
        recording = same.get(shared)
        if recording is None:
            groups = tuple(dict.fromkeys(map(_group, journal.calls)))
            stacks = tuple(map(_stack, journal.calls))
            key = (ways.setdefault(stacks, stacks), groups, _threads(journal.calls))
            candidates = alike.setdefault(key, [])
            recording = next((r for r in candidates if r.fits(journal)), None)
            if recording is None:
                recording = Recording(journal, numbers, patterns)
                candidates.append(recording)
            same[shared] = recording
        found[rank] = recording
    return found


class _Contents:
    """Numbers for calls, of which those that differ in their times alone have the same."""

    def __init__(self) -> None:
        self._by_call: dict[int, int] = {}
        """By identity: the calls live as long as the job."""
        self._by_number: dict[str, dict[int, Call]] = {}
        """Group → number → the first such call: of most numbers there is no other, and its content is not asked."""
        self._by_content: dict[Hashable, int] = {}

    def of(self, calls: tuple[Call, ...]) -> tuple[int, ...]:
        """The numbers of these calls."""
        try:
            return tuple(map(self._by_call.__getitem__, map(id, calls)))
        except KeyError:
            for call in calls:
                if id(call) not in self._by_call:
                    self._by_call[id(call)] = self._number(call)
            return tuple(map(self._by_call.__getitem__, map(id, calls)))

    def _number(self, call: Call) -> int:
        new = len(self._by_call)
        first = self._by_number.setdefault(call.group, {}).setdefault(call.sequence, call)
        if first is call:
            return new
        self._by_content.setdefault(_all_but_times(first), self._by_call[id(first)])
        return self._by_content.setdefault(_all_but_times(call), new)


class _Patterns:
    """Places of the groups' calls. Ranks of a mesh issue calls in the same order, in groups of other names."""

    def __init__(self) -> None:
        self._known: dict[Hashable, list[list[int]]] = {}

    def of(self, calls: tuple[Call, ...]) -> dict[str, list[int]]:
        """Group name → places, in order of their numbers. The lists are shared."""
        names = tuple(dict.fromkeys(map(_group, calls)))
        number = {name: place for place, name in enumerate(names)}
        groups = tuple(map(number.__getitem__, map(_group, calls)))
        sequences = tuple(map(_sequence, calls))
        key = groups, sequences
        if key not in self._known:
            found: list[list[int]] = [[] for _ in names]
            for place, group in enumerate(groups):
                found[group].append(place)
            for places in found:
                places.sort(key=sequences.__getitem__)
            self._known[key] = found
        return dict(zip(names, self._known[key], strict=True))


def _threads(calls: tuple[Call, ...]) -> tuple[int, ...]:
    """Which thread issued each call, numbered as they appear; () where there is only one."""
    threads = dict.fromkeys(map(_thread, calls))
    if len(threads) < 2:
        return ()
    numbers = {thread: number for number, thread in enumerate(threads)}
    return tuple(numbers[call.thread_id] for call in calls)
