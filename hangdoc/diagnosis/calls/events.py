"""What a rank issued, calls and batches of messages in one order, as its loop repeats it.

Ranks that issue the same in groups of the same names and members have one list in common: of hundreds of ranks only
some behave differently, and only those cost time and memory.

Example: all_reduce, then isend to 1 and irecv from 1 as one batch → two events, the second with the peers (1,).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple

from hangdoc.diagnosis.calls.history import RankProgram
from hangdoc.diagnosis.frames.stacks import Path, Site, path_of, site_of, user_stack
from hangdoc.model.journal import PointToPoint
from hangdoc.model.operations import operation
from hangdoc.model.process import Frame


class Event(NamedTuple):
    """A call or a batch of messages, as the rank's loop repeats it. Of large jobs there are a million."""

    key: Hashable
    """What makes two events of the rank the same."""
    role: tuple[Hashable, ...]
    """What makes events of two ranks the same that run one program in groups of their own: the group's name first."""
    op: str
    peers: tuple[int, ...]
    """Of messages."""
    group: str
    created_ns: int
    path: Path
    frame: Frame | None
    number: int = 0
    """Of a call: that of its group."""

    @property
    def is_message(self) -> bool:
        """True if it passes messages."""
        return bool(self.peers)


class Events:
    """The events of the ranks, made when somebody asks for them."""

    def __init__(self, programs: Mapping[int, RankProgram]) -> None:
        self._programs = programs
        self._made: dict[Hashable, list[Event]] = {}

    def of(self, rank: int) -> list[Event]:
        """What the rank issued, in its order. Nobody changes the list: others may have it in common."""
        program = self._programs[rank]
        journal = program.journal
        groups = tuple((name, named_group(program, name)) for name in program.recording.by_group)
        members = tuple(program.groups.items()) if journal.point_to_points else ()
        # Ranks of equal calls have one tuple of them.
        key = id(journal.calls), id(journal.point_to_points), id(journal.stacks), groups, members
        if key not in self._made:
            self._made[key] = _Reader(program).events()
        return self._made[key]


def named_group(program: RankProgram, name: str) -> tuple[str, tuple[int, ...]]:
    """(what the group is called in all rows of a mesh, its members)."""
    group = program.groups.get(name)
    return (group.description or name, group.members) if group is not None else (name, ())


class _Reader:
    """One rank's journal. What follows from a stack alone is computed once for each of its few stacks."""

    def __init__(self, program: RankProgram) -> None:
        self._program = program
        self._places: dict[int, tuple[Site, Path, Frame | None]] = {}
        self._same: dict[Hashable, tuple[Hashable, tuple[Hashable, ...]]] = {}

    def events(self) -> list[Event]:
        found = [*self._calls(), *self._messages()]
        return [event for _, _, event in sorted(found, key=lambda each: each[:2])]

    def _calls(self) -> list[tuple[int, int, Event]]:
        found = []
        for place, call in enumerate(self._program.journal.calls):
            site, path, frame = self._place(call.stack)
            same = call.group, call.op, call.input_sizes, call.stack
            if same not in self._same:
                kind = operation(call.op)
                label = named_group(self._program, call.group)[0]
                # An exchange has other sizes in every round.
                sizes = () if kind.exchange else call.input_sizes
                own = call.group, call.op, sizes, site
                self._same[same] = own, (label, call.op, call.input_sizes if kind.sized else (), site)
            key, role = self._same[same]
            event = Event(key, role, call.op, (), call.group, call.created_ns, path, frame, call.sequence)
            found.append((call.created_ns, place, event))
        return found

    def _messages(self) -> list[tuple[int, int, Event]]:
        batches: dict[tuple[str, int], list[PointToPoint]] = {}
        for message in self._program.journal.point_to_points:
            number = (message.group, message.batch) if message.batch else ("", -len(batches) - 1)
            batches.setdefault(number, []).append(message)
        issued = len(self._program.journal.calls)
        return [(batch[0].created_ns, issued + at, self._batch(batch)) for at, batch in enumerate(batches.values())]

    def _batch(self, messages: list[PointToPoint]) -> Event:
        first = messages[0]
        site, path, frame = self._place(first.stack)
        ways = tuple(sorted((m.op, m.peer) for m in messages))
        op = first.op if len(messages) == 1 else "batch_isend_irecv"
        peers = tuple(sorted({m.peer for m in messages}))
        label, members = named_group(self._program, first.group)
        same = first.group, ways, first.stack
        if same not in self._same:
            places = tuple((way, members.index(peer) if peer in members else peer) for way, peer in ways)
            self._same[same] = (first.group, ways, site), (label, places, site)
        key, role = self._same[same]
        return Event(key, role, op, peers, first.group, first.created_ns, path, frame)

    def _place(self, index: int) -> tuple[Site, Path, Frame | None]:
        if index not in self._places:
            stack = self._program.journal.stack(index)
            self._places[index] = site_of(stack), path_of(stack), next(iter(user_stack(stack)), None)
        return self._places[index]
