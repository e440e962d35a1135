"""What the lead makes of the digests: it asks for each piece once, of whoever has it, and puts the ranks together.

Ranks that behave alike share what they have in common also in memory: one tuple of calls, one of each stack. Their
calls then have the times of one of them: of the rank whose pending call is the oldest, as that one times out first.
All others have issued what is pending a microsecond later, so that it stays the first.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import TypeVar, cast

from hangdoc.errors import BadSnapshot
from hangdoc.model.clocks import Issued, seconds_behind, seconds_between
from hangdoc.model.codec import Allowance, value_from_bytes
from hangdoc.model.journal import Call, PointToPoint
from hangdoc.model.masked import masked
from hangdoc.model.process import Frame, Stack
from hangdoc.model.snapshot import JobSnapshot
from hangdoc.sidecar.meeting.digest import Digested
from hangdoc.sidecar.meeting.pieces import Digest, Members, Part, Piece, Pieces, identity
from hangdoc.sidecar.meeting.rebuilt_ranks import Guest, RebuiltRanks, Speaker
from hangdoc.sidecar.meeting.recorded_tests import Ring

MOST_PIECES = 50_000
"""That the lead asks for. Judgement: parts of 64 calls each, 500 bytes a call in memory, would take 1.5 GB; jobs have
some hundred."""
MOST_RINGS = 64
"""Of which: of one rank of each kind that is told apart by how its history ends. Some 5 KB each. Judgement."""
_LAST_TIME = 1 << 63
"""Unix ns."""

_Entry = TypeVar("_Entry", Call, PointToPoint)


class Unfolding:
    """Digests and pieces come in, one snapshot for each host comes out. ``own``: what the lead's host shows itself.
    ``room``: how much all that comes in may hold."""

    def __init__(self, own: Digested, room: Allowance) -> None:
        self._own = own
        self._room = room
        self._guests: dict[str, Guest] = {}
        self._stacks: dict[str, Stack] = {}
        self._members: dict[str, Members] = {}
        self._parts: dict[str, Part] = {}
        self._rings: dict[str, Ring] = {}
        self._oldest: dict[str, tuple[int, str, int]] = {}
        """Part at the end of a history → (since when it waits, member, index) of the rank that waits longest there."""

    def add(self, member: str, data: bytes | Digest, speaker: Speaker) -> None:
        """The digest of ``member``, or what ``read_digest`` has made of it. Raises ``BadSnapshot``."""
        digest = data if isinstance(data, Digest) else read_digest(data, speaker.host, self._room)
        self._guests[member] = Guest(member, digest, speaker)

    def compare(self) -> None:
        """Find out by how much clocks differ, and who waits longest; once, when all digests are here."""
        guests = [Guest("", self._own.digest, Speaker("", ())), *self._guests.values()]
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
        givers |= self._of_representatives(without)
        found: dict[str, list[str]] = {}
        for name, member in givers.items():
            if not any(name in known for known in (self._stacks, self._members, self._parts, self._rings)):
                found.setdefault(member, []).append(name)
        return {member: tuple(names) for member, names in found.items()}

    def _of_representatives(self, without: Collection[str]) -> dict[str, str]:
        """Ring → member, of those ranks by whose times the others go, which do what they do as well."""
        found: dict[str, str] = {}
        for _, member, index in self._oldest.values():
            guest = self._guests.get(member)
            if guest is not None and member not in without and len(found) < MOST_RINGS:
                found |= {each.ring: member for each in guest.digest.recorded if each.rank == index and each.ring}
        return found

    def take(self, member: str, data: bytes) -> None:
        """The pieces that ``member`` has sent. Raises ``BadSnapshot``."""
        guest = self._guests[member]
        pieces = value_from_bytes(Pieces, data, origin=f"the pieces of {guest.speaker.host}", allowance=self._room)
        found: list[Piece] = [*pieces.stacks, *pieces.members, *pieces.parts, *pieces.rings]
        for piece in found:
            self._keep(identity(piece), _later(piece, guest.behind) if isinstance(piece, Part) else masked(piece))

    def snapshots(self) -> dict[str, JobSnapshot]:
        """Member → what its host shows."""
        for name, piece in self._own.known.items():
            self._keep(name, piece)
        oldest = {name: (member, index) for name, (_, member, index) in self._oldest.items()}
        ranks = RebuiltRanks(self._stacks, self._members, self._parts, self._rings, oldest, self._room)
        found = {member: ranks.of(guest) for member, guest in self._guests.items()}
        ranks.finish()
        return found

    def _keep(self, name: str, piece: Piece) -> None:
        if isinstance(piece, Part):
            self._parts.setdefault(name, piece)
        elif isinstance(piece, Ring):
            self._rings.setdefault(name, piece)
        elif piece and isinstance(piece[0], Frame):
            self._stacks.setdefault(name, piece)
        else:
            self._members.setdefault(name, cast("Members", piece))


def _later(part: Part, seconds: float) -> Part:
    shift = round(seconds * 1e9)
    if not shift:
        return part

    def later(entry: _Entry) -> _Entry:
        if not entry.created_ns:
            return entry
        started = entry.started_ns + shift if entry.started_ns else 0
        completed = entry.completed_ns + shift if entry.completed_ns else 0
        return replace(entry, created_ns=entry.created_ns + shift, started_ns=started, completed_ns=completed)

    return replace(part, calls=tuple(map(later, part.calls)), messages=tuple(map(later, part.messages)))


def read_digest(data: bytes, host: str, room: Allowance) -> Digest:
    """The digest in ``data``, without secrets: all that can be done with it before the others are here. It takes part
    in one ``Unfolding``, which changes it. Raises ``BadSnapshot``."""
    digest = value_from_bytes(Digest, data, origin=f"the digest of {host}", allowance=room)
    _refuse_dangling(digest, host)
    return replace(digest, job=masked(digest.job), tests=masked(digest.tests))


# Its branches are comprehensions over what a digest may get wrong.
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
