"""What the lead makes of the digests: it asks for each piece once, of whoever has it, and puts the ranks together.

Ranks that behave alike share what they have in common also in memory: one tuple of calls, one of each stack. Their
calls then have the times of one of them: of the rank whose pending call is the oldest, as that one times out first.
All others have issued what is pending a microsecond later, so that it stays the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from hangdoc.errors import BadSnapshot
from hangdoc.model.clocks import Issued, moved, seconds_behind, seconds_between
from hangdoc.model.codec import Allowance, value_from_bytes
from hangdoc.model.journal import Call, Journal, PointToPoint, ProcessGroup
from hangdoc.model.masked import masked
from hangdoc.model.process import Frame, Process, ProcessState, Stack, Thread
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot, Unavailable
from hangdoc.sidecar.meeting.digest import Digested
from hangdoc.sidecar.meeting.pieces import REFERENCE, SAME, Digest, History, Members, Part, Piece, Pieces, identity
from hangdoc.sidecar.meeting.records import LARGEST_WORLD

MOST_PIECES = 50_000
"""That the lead asks for. Judgement: parts of 64 calls each, 500 bytes a call in memory, would take 1.5 GB; jobs have
some hundred."""
_MOST_ENTRIES = 200_000
"""Calls and messages of one rank; the capture reads 100,000 calls. Judgement."""
_MOST_REFERENCES = 40_000_000
"""Of all ranks that share nothing, 8 bytes each."""

_VALUES_OF_A_CALL, _REFERENCES_OF_A_VALUE = 3, 10
"""A call that is made, and a reference to one, in the memory that a value counts for."""

_LATE = 1000
"""Nanoseconds: the least that seconds since 1970 can tell apart as a float."""

_LAST_TIME = 1 << 63
"""Unix ns."""

_Entry = TypeVar("_Entry", Call, PointToPoint)


@dataclass(frozen=True, slots=True)
class Speaker:
    """Who has sent a digest: a watch on ``host``, which may speak for ``ranks``."""

    host: str
    ranks: Collection[int]
    asked: bool = False
    """It looked because we asked, at the same moment as we did."""


@dataclass(slots=True)
class _Guest:
    """A host whose digest has come. ``behind``: seconds to add to its times."""

    member: str
    digest: Digest
    speaker: Speaker
    behind: float = 0.0


class Unfolding:
    """Digests and pieces come in, one snapshot for each host comes out. ``own``: what the lead's host shows itself.
    ``room``: how much all that comes in may hold."""

    def __init__(self, own: Digested, room: Allowance) -> None:
        self._own = own
        self._room = room
        self._guests: dict[str, _Guest] = {}
        self._stacks: dict[str, Stack] = {}
        self._members: dict[str, Members] = {}
        self._parts: dict[str, Part] = {}
        self._oldest: dict[str, tuple[int, str, int]] = {}
        """Part at the end of a history → (since when it waits, member, index) of the rank that waits longest there."""

    def add(self, member: str, data: bytes, speaker: Speaker) -> None:
        """The digest of ``member``. Raises ``BadSnapshot``."""
        digest = value_from_bytes(Digest, data, origin=f"the digest of {speaker.host}", allowance=self._room)
        _refuse_dangling(digest, speaker.host)
        self._guests[member] = _Guest(member, digest, speaker)

    def compare(self) -> None:
        """Find out by how much clocks differ, and who waits longest; once, when all digests are here."""
        guests = [_Guest("", self._own.digest, Speaker("", ())), *self._guests.values()]
        issued: list[Issued] = []
        for guest in guests:
            if guest.speaker.asked:
                guest.behind = seconds_between(guest.digest.job.taken, self._own.digest.job.taken)
            more = guest.behind
            issued.append(
                {
                    (key, number): (first / 1e9 + more, last / 1e9 + more)
                    for key, number, first, last in guest.digest.issued
                }
            )
        for guest, more in zip(guests, seconds_behind(issued), strict=True):
            guest.behind += more
            behind = guest.behind
            for history in guest.digest.histories:
                if history.parts:
                    end = guest.digest.parts[history.parts[-1]]
                    mine = history.since + round(behind * 1e9), guest.member, history.rank
                    self._oldest[end] = min(mine, self._oldest.get(end, mine))
        for name, piece in self._own.known.items():
            if self._oldest.get(name, (0, "", 0))[1] == "":
                self._keep(name, piece)

    def wanted(self, without: Collection[str] = ()) -> dict[str, tuple[str, ...]]:
        """Member → the pieces that it is asked for, so that each is asked for once; not those ``without``, who have not
        answered."""
        givers = {
            name: member for name, (_, member, _) in self._oldest.items() if member in self._guests.keys() - without
        }
        asked = set(givers.values())
        # Of all others rather those who are asked anyway.
        for member in sorted(self._guests.keys() - without, key=lambda member: (member not in asked, member)):
            digest = self._guests[member].digest
            for name in (*digest.stacks, *digest.members, *digest.parts):
                if len(givers) < MOST_PIECES:
                    givers.setdefault(name, member)
        found: dict[str, list[str]] = {}
        for name, member in givers.items():
            if name not in self._stacks and name not in self._members and name not in self._parts:
                found.setdefault(member, []).append(name)
        return {member: tuple(names) for member, names in found.items()}

    def take(self, member: str, data: bytes) -> None:
        """The pieces that ``member`` has sent. Raises ``BadSnapshot``."""
        guest = self._guests[member]
        pieces = value_from_bytes(Pieces, data, origin=f"the pieces of {guest.speaker.host}", allowance=self._room)
        found: list[Piece] = [*pieces.stacks, *pieces.members, *pieces.parts]
        for piece in found:
            self._keep(identity(piece), _later(piece, guest.behind) if isinstance(piece, Part) else masked(piece))

    def snapshots(self) -> dict[str, JobSnapshot]:
        """Member → what its host shows."""
        for name, piece in self._own.known.items():
            self._keep(name, piece)
        oldest = {name: (member, index) for name, (_, member, index) in self._oldest.items()}
        ranks = _Ranks(self._stacks, self._members, self._parts, oldest, self._room)
        found = {member: ranks.of(guest) for member, guest in self._guests.items()}
        ranks.finish()
        return found

    def _keep(self, name: str, piece: Piece) -> None:
        if isinstance(piece, Part):
            self._parts.setdefault(name, piece)
        elif piece and isinstance(piece[0], Frame):
            self._stacks.setdefault(name, piece)
        else:
            self._members.setdefault(name, cast("Members", piece))


def _later(part: Part, seconds: float) -> Part:
    shift = round(seconds * 1e9)
    if not shift:
        return part

    def later(entry: _Entry) -> _Entry:
        return replace(entry, created_ns=entry.created_ns + shift) if entry.created_ns else entry

    return replace(part, calls=tuple(map(later, part.calls)), messages=tuple(map(later, part.messages)))


def _refuse_dangling(digest: Digest, host: str) -> None:
    """Raise ``BadSnapshot`` for rows that no table has, and for times that there are not."""
    times = (at for _, _, first, last in digest.issued for at in (first, last))
    if not math.isfinite(digest.job.taken) or not all(0 <= at < _LAST_TIME for at in times):
        raise BadSnapshot(f"the digest of {host} is damaged: it tells no time")
    for history in digest.histories:
        fits = 0 <= history.rank < len(digest.job.ranks) and len(history.parts) == len(history.called)
        fits = fits and all(0 <= row < len(digest.parts) for row in history.parts)
        if not fits or not all(0 <= row < len(history.groups) for rows in history.called for row in rows):
            raise BadSnapshot(f"the digest of {host} is damaged: a history has no such parts")


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


class _Ranks:
    """Puts ranks together. All journals have one table of stacks, so that ranks of equal calls share those."""

    def __init__(
        self,
        stacks: Mapping[str, Stack],
        members: Mapping[str, Members],
        parts: Mapping[str, Part],
        oldest: Mapping[str, tuple[str, int]],
        room: Allowance,
    ) -> None:
        """``oldest``: part at the end of a history → (member, index of its rank) that waits longest there."""
        self._stacks, self._members, self._parts = stacks, members, parts
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
        self._expected: set[int] = set()

    def of(self, guest: _Guest) -> JobSnapshot:
        """What the host shows; ``finish`` when all have been asked for."""
        digest = guest.digest
        stacks = [self._stacks.get(name, ()) for name in digest.stacks]
        notes = []
        if missing := stacks.count(()):
            notes.append(Unavailable("stack", f"{missing} stacks of {guest.speaker.host} have not come"))
        job = moved(masked(digest.job), guest.behind)
        histories = {history.rank: history for history in digest.histories}
        ranks = []
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
            ranks.append(_with_stacks(rank, journal, stacks))
        if job.launcher is not None:
            _restore(job.launcher, stacks)
        ranks.sort(key=lambda rank: rank.rank)
        return replace(job, ranks=tuple(ranks), unavailable=(*job.unavailable, *notes))

    def _new(self, numbers: range) -> list[int]:
        """Those of the expected ranks that no host has listed yet: each lists all."""
        numbers = numbers[:LARGEST_WORLD]
        self._left -= len(numbers)
        if self._left < 0 or not numbers or numbers[0] < 0 or numbers[-1] >= LARGEST_WORLD:
            return []
        found = [number for number in numbers if number not in self._expected]
        self._expected.update(found)
        return found

    def finish(self) -> None:
        """Give all journals their stacks."""
        table = tuple(self._stacks.get(name, ()) for name in self._numbers)
        for journal in self._made:
            _SET_STACKS(journal, table)

    def _journal(
        self, rank: int, journal: Journal, guest: _Guest, history: History | None, stacks: list[Stack]
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

    def _named(self, history: History, guest: _Guest) -> tuple[_Named, ...]:
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
    if end is not None and end.stack:
        end = replace(end, stack=_resolved(end.stack, stacks))
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
