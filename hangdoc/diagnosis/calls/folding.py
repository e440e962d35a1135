"""Journals with equal calls, folded before anything is done for each rank: of thousands of ranks only some behave
differently, and only those differences cost time."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import chain, compress, count
from operator import attrgetter, not_

from hangdoc.diagnosis.calls.courses import Course, Courses, Track, Tracks, numbered_threads, open_arguments
from hangdoc.model.journal import Call, Journal
from hangdoc.model.process import Stack
from hangdoc.model.shared_calls import SharedCalls

# What makes two calls equal. Times are each rank's own; the members of its groups too (a mesh gives every row a
# group of the same name), so one recording may serve many groups.
_COLUMNS = tuple(map(attrgetter, ("sequence", "group", "completed", "state")))
_stack = attrgetter("stack")
_sequence = attrgetter("sequence")
_completed = attrgetter("completed")
_state = attrgetter("state")
_group = attrgetter("group")
_place = attrgetter("line", "function", "file")


class Recording:
    """The calls that some ranks have in common, by their places in ``Journal.calls``."""

    __slots__ = (
        "_compared",
        "_frames",
        "_journal",
        "_part_of",
        "by_group",
        "completed",
        "course",
        "pending",
        "runs_ahead",
        "stacks",
    )

    def __init__(self, journal: Journal, names: tuple[str, ...], tracks: Tracks, course: Course | None) -> None:
        """``names``: of its groups, as they appear; ``course``: of a dump."""
        calls = journal.calls
        self.course = course
        """Ranks of a mesh have it in common though their groups have other names; None where no dump shows the rank."""
        self.stacks = journal.stacks
        self._part_of = {name: part for part, name in enumerate(names)}
        found = course.tracks if course is not None else _tracks_of(calls, self._part_of, tracks)
        self.by_group: dict[str, Track] = dict(zip(names, found, strict=True))
        self.pending: tuple[int, ...]
        if course is not None:
            self.pending = course.pending
            self.completed = frozenset(map(names.__getitem__, course.completed))
            self.runs_ahead = course.runs_ahead
        else:
            self.pending = tuple(compress(count(), map(not_, map(_completed, calls))))
            self.completed = frozenset(compress(map(_group, calls), map(_completed, calls)))
            self.runs_ahead = any(map(_state, calls))
        # ``completed``: the groups in which a call has completed. ``runs_ahead``: a device executes the calls, and the
        # program has issued more of them than the device has come to.
        self._journal = journal
        # Made when the first journal is compared.
        self._compared: tuple[list[list[object]], list[object]] | None = None
        self._frames: list[object] | None = None

    @property
    def issued_at(self) -> dict[int, None]:
        """The indices of the calls' stacks, each once, as they appear."""
        return dict.fromkeys(self.course.stacks if self.course is not None else map(_stack, self._journal.calls))

    @property
    def issued_from(self) -> list[Stack]:
        """The stacks of the calls, each once."""
        return [self.stacks[index] for index in self.issued_at if 0 <= index < len(self.stacks)]

    def content_of(self, group: str) -> Hashable:
        """What is the same for the calls of all ranks that issue the same in the group, at the same places; None where
        no dump shows the rank."""
        if self.course is None:
            return None
        return self.course.contents[self._part_of[group]], self.by_group[group]

    def pending_of(self, group: str) -> list[int]:
        """The numbers of the group's calls that have not completed, in their order, where dumps show the rank."""
        return self.course.pending_of.get(self._part_of[group], []) if self.course is not None else []

    def fits(self, journal: Journal, course: Course | None) -> bool:
        """Are the journal's calls these? Their number and stack indices are known to be equal."""
        if course is not None and self.course is not None:
            return self.course.fits(course) and self._has_frames_of(journal)
        if self._compared is None:
            mine = self._journal.calls
            self._compared = [list(map(column, mine)) for column in _COLUMNS], open_arguments(mine, self.pending)
        columns, arguments = self._compared
        return (
            all(list(map(column, journal.calls)) == own for column, own in zip(_COLUMNS, columns, strict=True))
            and open_arguments(journal.calls, self.pending) == arguments
            and self._has_frames_of(journal)
        )

    def _has_frames_of(self, journal: Journal) -> bool:
        if journal.stacks is self.stacks:
            return True
        if self._frames is None:
            self._frames = _frames(self.stacks)
        return _frames(journal.stacks) == self._frames


def _frames(stacks: Sequence[Stack]) -> list[object]:
    return [*map(len, stacks), *map(_place, chain.from_iterable(stacks))]


def _tracks_of(calls: Sequence[Call], part_of: dict[str, int], tracks: Tracks) -> list[Track]:
    return tracks.of(tuple(map(part_of.__getitem__, map(_group, calls))), tuple(map(_sequence, calls)))


def record(journals: Iterable[tuple[int, Journal]]) -> dict[int, Recording]:
    """Rank → its recording, one object for all ranks whose calls are equal."""
    folded = _Folded()
    return {rank: folded.recording(journal) for rank, journal in journals}


class _Folded:
    """The recordings so far."""

    def __init__(self) -> None:
        self._tracks = Tracks()
        self._courses = Courses(self._tracks)
        self._same: dict[Hashable, Recording] = {}
        self._shared: dict[Hashable, Recording] = {}
        """By identity in memory of the stacks and the calls."""
        self._alike: dict[Hashable, list[Recording]] = {}
        self._ways: dict[Hashable, int] = {}
        """From which lines the calls are issued, and by which threads."""
        self._way_of: dict[Course, int] = {}

    def recording(self, journal: Journal) -> Recording:
        """That of a rank."""
        # Of a job on many hosts, ranks of equal calls share them: one tuple for thousands.
        shared = id(journal.stacks), id(journal.calls), journal.source == "dump"
        if shared not in self._shared:
            self._shared[shared] = self._recording(journal)
        return self._shared[shared]

    def _recording(self, journal: Journal) -> Recording:
        if journal.source != "dump" or not journal.calls:
            names = tuple(dict.fromkeys(map(_group, journal.calls)))
            way = self._way(tuple(map(_stack, journal.calls)), numbered_threads(journal.calls))
            return self._like(journal, way, names, None)
        # Dumps of a folder share the calls that they have in common, and number their threads alike.
        shared = SharedCalls.of(journal.calls)
        course, names = self._courses.of(shared), tuple([part.group for part in shared.parts])
        key = id(journal.stacks), course, names
        if key not in self._same:
            if course not in self._way_of:
                self._way_of[course] = self._way(course.stacks, course.threads)
            self._same[key] = self._like(journal, self._way_of[course], names, course)
        return self._same[key]

    def _way(self, stacks: tuple[int, ...], threads: tuple[int, ...]) -> int:
        return self._ways.setdefault((stacks, threads), len(self._ways))

    def _like(self, journal: Journal, way: int, names: tuple[str, ...], course: Course | None) -> Recording:
        """The recording that the journal fits."""
        candidates = self._alike.setdefault((way, names), [])
        found = next((r for r in candidates if r.fits(journal, course)), None)
        if found is None:
            found = Recording(journal, names, self._tracks, course)
            candidates.append(found)
        return found
