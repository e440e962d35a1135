"""The ranks of a host, made anew from its digest and the pieces that it and others have sent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from hangdoc.model.clocks import moved
from hangdoc.model.codec import Allowance
from hangdoc.model.journal import Call, Journal, PointToPoint, ProcessGroup
from hangdoc.model.process import Process, ProcessState, Stack, Thread
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot, Unavailable
from hangdoc.sidecar.meeting.pieces import REFERENCE, SAME, Digest, History, Members, Part
from hangdoc.sidecar.meeting.recorded_tests import Ring, with_tests
from hangdoc.sidecar.meeting.records import LARGEST_WORLD

_MOST_ENTRIES = 200_000
"""Calls and messages of one rank; the capture reads 100,000 calls. Judgement."""

_MOST_REFERENCES = 40_000_000
"""Of all ranks that share nothing, 8 bytes each."""

_VALUES_OF_A_CALL, _REFERENCES_OF_A_VALUE = 3, 10
"""A call that is made, and a reference to one, in the memory that a value counts for."""

_LATE = 1000
"""Nanoseconds: the least that seconds since 1970 can tell apart as a float."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """Who has sent a digest: a watch on ``host``, which may speak for ``ranks``."""

    host: str
    ranks: Collection[int]
    asked: bool = False
    """It looked because we asked, at the same moment as we did."""


@dataclass(slots=True)
class Guest:
    """A host whose digest has come. ``behind``: seconds to add to its times."""

    member: str
    digest: Digest
    speaker: Speaker
    behind: float = 0.0


@dataclass(frozen=True, slots=True)
class _Named:
    """A part by its identity, with the groups that its numbers mean. ``late``: of a rank that was not the first."""

    name: str
    groups: tuple[str, ...]
    late: bool = False

    def group(self, number: str) -> str:
        """The group of that number."""
        known = len(number) < 6 and number.isdecimal() and int(number) < len(self.groups)
        return self.groups[int(number)] if known else ""

    def issued(self, entry: Call | PointToPoint) -> int:
        """When it was issued, in Unix ns."""
        late = self.late and entry.created_ns and not entry.completed
        return entry.created_ns + _LATE if late else entry.created_ns


class RebuiltRanks:
    """Puts ranks together. All journals have one table of stacks, so that ranks of equal calls share those."""

    def __init__(
        self,
        stacks: Mapping[str, Stack],
        members: Mapping[str, Members],
        parts: Mapping[str, Part],
        rings: Mapping[str, Ring],
        oldest: Mapping[str, tuple[str, int]],
        room: Allowance,
    ) -> None:
        """``oldest``: part at the end of a history → (member, index of its rank) that waits longest there."""
        self._stacks, self._members, self._parts, self._rings = stacks, members, parts, rings
        self._numbers: dict[str, int] = {}
        """Identity of a stack → its index in all journals."""
        self._made: list[Journal] = []
        self._known: dict[tuple[object, ...], tuple[_Named, ...]] = {}
        self._histories: dict[int, tuple[tuple[_Named, ...], tuple[Call, ...]]] = {}
        """By identity in memory of the parts, with those."""
        self._calls: dict[_Named, tuple[Call, ...]] = {}
        self._of_group: dict[tuple[str, bool, str, str], dict[int, Call]] = {}
        """(part, whether it is late, number of a group in it, the group) → the calls. Ranks of one row share them."""
        self._places: dict[int, dict[int, int]] = {}
        self._left = _MOST_REFERENCES
        self._oldest = oldest
        self._room = room
        self._charged: set[_Named] = set()
        """Parts whose calls have been made, or are about to be."""
        self._after: dict[int, int] = {}
        """An expected rank that a host has listed → one further on, up to the next that none has."""

    # One branch for each thing that a host may not say, or that has not come.
    def of(self, guest: Guest) -> JobSnapshot:
        """What the host shows; ``finish`` when all have been asked for."""
        digest = guest.digest
        stacks = [self._stacks.get(name, ()) for name in digest.stacks]
        notes = []
        if missing := stacks.count(()):
            notes.append(Unavailable("stack", f"{missing} stacks of {guest.speaker.host} have not come"))
        job = moved(digest.job, guest.behind)
        histories = {history.rank: history for history in digest.histories}
        ranks = []
        recorded = {
            each.rank: self._rings[each.ring].put_into(each, digest.tests) if each.ring in self._rings else each
            for each in digest.recorded
        }
        expected = {index: range(first, first + count) for index, first, count in digest.expected}
        for index, rank in enumerate(job.ranks):
            unseen = rank.process is None and rank.exit is None and rank.journal is None
            if unseen and index in expected:
                ranks += [replace(rank, rank=number) for number in self._new(expected[index])]
                continue
            if rank.rank not in guest.speaker.ranks and not unseen:
                continue
            journal, why = rank.journal, ""
            if journal is not None:
                journal, why = self._journal(rank.rank, journal, guest, histories.get(index), stacks)
            if why:
                notes.append(Unavailable("journal", why, rank=rank.rank))
            whole = with_tests(rank, recorded[index], digest.tests, journal) if index in recorded else rank
            ranks.append(_with_stacks(whole, journal, stacks))
        if job.launcher is not None:
            _restore(job.launcher, stacks)
        ranks.sort(key=lambda rank: rank.rank)
        return replace(job, ranks=tuple(ranks), unavailable=(*job.unavailable, *notes))

    def _new(self, numbers: range) -> list[int]:
        """Those of the expected ranks that no host has listed yet: each lists all, so what is known is leapt over."""
        if not numbers or numbers[0] < 0 or numbers[-1] >= LARGEST_WORLD:
            return []
        found: list[int] = []
        number = self._next(numbers[0])
        while number <= numbers[-1]:
            found.append(number)
            self._after[number] = number + 1
            number = self._next(number + 1)
        return found

    def _next(self, number: int) -> int:
        """The first rank from ``number`` on that no host has listed."""
        way = []
        while number in self._after:
            way.append(number)
            number = self._after[number]
        self._after.update(dict.fromkeys(way, number))
        return number

    def finish(self) -> None:
        """Give all journals their stacks."""
        table = tuple(self._stacks.get(name, ()) for name in self._numbers)
        for journal in self._made:
            _SET_STACKS(journal, table)

    # Its branches are the reasons why a history cannot be put together.
    def _journal(
        self, rank: int, journal: Journal, guest: Guest, history: History | None, stacks: list[Stack]
    ) -> tuple[Journal | None, str]:
        """(the journal with its history, what it lacks)."""
        digest = guest.digest
        groups = tuple(
            replace(group, members=self._members_of(group, digest), created_at=self._stack(digest, group.created_at))
            for group in journal.groups
        )
        parts = self._named(history, guest) if history is not None else ()
        missing = max((at for at, part in enumerate(parts, 1) if part.name not in self._parts), default=0)
        if missing and missing == len(parts):
            return None, "its host did not send the end of its history"
        parts = parts[missing:] if missing else parts
        if missing and (journal.gave_up or journal.issued_at):
            return None, "the older part of its history has not come"  # and they say what they say by places in it
        messages = sum(len(self._parts[part.name].after) for part in parts)
        count = messages + sum(len(self._parts[part.name].calls) for part in parts)
        self._left -= count
        if count > _MOST_ENTRIES or self._left < 0:
            return None, f"its history of {count} calls is too long"
        if not self._has_room(parts, messages):
            return None, "its history is too large for this host's memory, with the others"
        made = replace(
            journal,
            groups=groups,
            calls=self._history(parts),
            point_to_points=tuple(self._messages(rank, parts, groups)),
            forgotten=journal.forgotten + missing,
            store_waits=tuple(replace(w, stack=self._stack(digest, w.stack)) for w in journal.store_waits),
            failed_at=_resolved(journal.failed_at, stacks),
            handled_at=_resolved(journal.handled_at, stacks),
        )
        self._made.append(made)
        return made, "the older part of its history has not come" if missing else ""

    def _has_room(self, parts: tuple[_Named, ...], messages: int) -> bool:
        """True if the history may be made. What ranks share counts once."""
        new = {part for part in parts if part not in self._charged}
        calls = sum(len(self._parts[part.name].calls) for part in new)
        references = 0 if id(parts) in self._histories else sum(len(self._parts[part.name].calls) for part in parts)
        if not self._room.take(_VALUES_OF_A_CALL * (calls + messages) + references // _REFERENCES_OF_A_VALUE):
            return False
        self._charged |= new
        return True

    def _named(self, history: History, guest: Guest) -> tuple[_Named, ...]:
        """The parts of a history."""
        if not history.parts:
            return ()
        digest = guest.digest
        names = tuple(map(digest.parts.__getitem__, history.parts))
        late = self._oldest.get(names[-1]) != (guest.member, history.rank)
        key = names, history.called, history.groups, late
        if key not in self._known:
            groups = [tuple(map(history.groups.__getitem__, called)) for called in history.called]
            found = list(map(_Named, names, groups))
            found[-1] = replace(found[-1], late=late)
            self._known[key] = tuple(found)
        return self._known[key]

    def _history(self, parts: tuple[_Named, ...]) -> tuple[Call, ...]:
        """The calls of these parts; the same tuple for all ranks that have them."""
        if id(parts) not in self._histories:
            self._histories[id(parts)] = parts, tuple(call for part in parts for call in self._calls_of(part))
        return self._histories[id(parts)][1]

    def _calls_of(self, named: _Named) -> tuple[Call, ...]:
        if named not in self._calls:
            self._calls[named] = tuple(self._made_calls(named))
        return self._calls[named]

    def _made_calls(self, named: _Named) -> Iterator[Call]:
        part = self._parts[named.name]
        for row, call in enumerate(part.calls):
            group = named.group(call.group)
            known = self._of_group.setdefault((named.name, named.late, call.group, group), {})
            if row not in known:
                stack = self._stack_of(part, call.stack)
                known[row] = replace(call, group=group, stack=stack, created_ns=named.issued(call))
            yield known[row]

    def _messages(self, rank: int, parts: Iterable[_Named], groups: tuple[ProcessGroup, ...]) -> Iterator[PointToPoint]:
        members = {group.name: group.members for group in groups}
        for named in parts:
            part = self._parts[named.name]
            for message in part.messages:
                group = named.group(message.group)
                yield replace(
                    message,
                    group=group,
                    peer=self._peer(message.peer, rank, members.get(group, ())),
                    stack=self._stack_of(part, message.stack),
                    created_ns=named.issued(message),
                )

    def _peer(self, further_on: int, rank: int, members: Members) -> int:
        if further_on < 0:
            return further_on if further_on == -1 else -2 - further_on
        if id(members) not in self._places:
            self._places[id(members)] = {member: place for place, member in enumerate(members)}
        place = self._places[id(members)].get(rank)
        return -1 if place is None else members[(place + further_on) % len(members)]

    def _members_of(self, group: ProcessGroup, digest: Digest) -> Members:
        if len(group.members) != 2 or group.members[0] != -1:
            return group.members
        row = group.members[1]
        return self._members.get(digest.members[row], ()) if 0 <= row < len(digest.members) else ()

    def _stack(self, digest: Digest, row: int) -> int:
        return self._number(digest.stacks[row]) if 0 <= row < len(digest.stacks) else -1

    def _stack_of(self, part: Part, index: int) -> int:
        return self._number(part.stacks[index]) if 0 <= index < len(part.stacks) else -1

    def _number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))


# What was just read, and nobody else has, is changed in place: 8,000 ranks have 200,000 threads.
_SET_STACKS: Callable[[Journal, tuple[Stack, ...]], None] = Journal.__dict__["stacks"].__set__
_SET_THREADS: Callable[[ProcessState, tuple[Thread, ...]], None] = ProcessState.__dict__["threads"].__set__
_SET_FRAMES: Callable[[Thread, Stack], None] = Thread.__dict__["frames"].__set__
_SET_NATIVE_FRAMES: Callable[[Thread, Stack], None] = Thread.__dict__["native_frames"].__set__


def _with_stacks(rank: RankSnapshot, journal: Journal | None, stacks: list[Stack]) -> RankSnapshot:
    if rank.process is not None:
        _restore(rank.process, stacks)
    end = rank.exit
    if end is not None and end.stack:  # of an exception, or of where a signal ended the rank
        chain = tuple(replace(each, stack=_resolved(each.stack, stacks)) for each in end.raised_from)
        end = replace(end, stack=_resolved(end.stack, stacks), raised_from=chain)
    return replace(rank, journal=journal, exit=end, first_store=_resolved(rank.first_store, stacks))


def _restore(process: Process, stacks: list[Stack]) -> None:
    """Give the threads their stacks."""
    for look in process.looks:
        for thread in look.threads:
            if thread.frames:
                _SET_FRAMES(thread, _resolved(thread.frames, stacks))
            if thread.native_frames:
                _SET_NATIVE_FRAMES(thread, _resolved(thread.native_frames, stacks))
    if len(process.looks) == 2 and process.looks[0].threads[-1:] and process.looks[0].threads[-1].tid == SAME:
        _SET_THREADS(process.looks[0], tuple(_with_same(*process.looks)))
    for child in process.children:
        _restore(child, stacks)


def _with_same(first: ProcessState, last: ProcessState) -> Iterator[Thread]:
    """The threads of the first look, with those that are the same at the last."""
    words = first.threads[-1].name.split()[: len(last.threads)]
    same = {int(word) for word in words if word.isdecimal() and len(word) < 6}
    own = iter(first.threads[:-1])
    for place in range(len(same) + len(first.threads) - 1):
        thread = last.threads[place] if place in same and place < len(last.threads) else next(own, None)
        if thread is not None:
            yield thread


def _resolved(stack: Stack, stacks: list[Stack]) -> Stack:
    """The stack that ``stack`` refers to."""
    if len(stack) != 1 or stack[0].file != REFERENCE:
        return stack
    row = stack[0].line
    return stacks[row] if 0 <= row < len(stacks) else ()
