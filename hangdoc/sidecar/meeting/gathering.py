"""How the lead comes to the snapshots of many hosts in two steps: a digest of each, then the few pieces that differ."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence

from hangdoc.errors import HangdocError
from hangdoc.model.codec import Allowance
from hangdoc.model.encode import refuse_too_deep, snapshot_to_bytes
from hangdoc.model.snapshot import JobSnapshot
from hangdoc.sidecar.meeting.boards import PART
from hangdoc.sidecar.meeting.digest import Digested, digested
from hangdoc.sidecar.meeting.lead import LeadView
from hangdoc.sidecar.meeting.meeting import Meeting, View
from hangdoc.sidecar.meeting.pieces import Digest
from hangdoc.sidecar.meeting.rebuilt_ranks import Speaker
from hangdoc.sidecar.meeting.unfold import Unfolding, read_digest
from hangdoc.sidecar.meeting.wire import withheld
from hangdoc.sidecar.meeting.wishes import MOST_PARTS

_MARK = b"#"
"""What a digest begins with, unlike a snapshot."""
_TRIES = 2
"""If a host does not send its pieces, others that have the same are asked."""
_PIECES_SECONDS = 4.0
"""For pieces, which a host has at hand. Judgement."""

Known = Callable[[Sequence[str]], bytes]


def prepared(snapshot: JobSnapshot, *, digest: bool, send_sources: bool) -> tuple[bytes, Known | None]:
    """(what to send of this host's snapshot, what gives the pieces that were left out). A snapshot that would be too
    large becomes a digest, too."""
    try:
        shown = withheld(snapshot, send_sources=send_sources)
        if not digest:
            data = snapshot_to_bytes(shown)
            if len(data) <= MOST_PARTS * PART:
                return data, None
        refuse_too_deep(shown)
        found = digested(shown)
        return _MARK + found.written(), found.pieces
    except HangdocError:
        return b"", None  # nested too deeply: the lead says that it cannot be read


def own_digest(own: JobSnapshot) -> Digested:
    """What the lead's own host shows, of which nothing has to be asked for."""
    return digested(withheld(own, send_sources=False))


def digests_in(answers: Mapping[str, bytes | str]) -> dict[str, bytes]:
    """Those of the answers, by member."""
    return {member: found[1:] for member, found in answers.items() if isinstance(found, bytes) and found[:1] == _MARK}


class Reading:
    """Reads digests as they come, while others are still waited for: of a thousand, most are read before the last one
    is here. ``room``: what all that others send may hold together."""

    def __init__(self, room: Allowance) -> None:
        self.room = room
        self._read: dict[str, tuple[bytes, Digest | str]] = {}

    def unread(self, view: View) -> list[tuple[str, str, bytes]]:
        """(member, its host, the digest) of those that have come and have not been read."""
        if not isinstance(view, LeadView) or len(view.answers) == len(self._read):
            return []
        found = digests_in(view.answers)
        hosts = {seat.beat.member: seat.beat.host for seat in view.fitting()}
        new = [member for member in found if member in hosts and member not in self._read]
        return [(member, hosts[member], found[member]) for member in new]

    def read(self, view: View) -> None:
        """Read what has come."""
        for member, host, data in self.unread(view):
            self._read[member] = data, self._digest(host, data)

    def taken(self, member: str, host: str, data: bytes) -> Digest | str:
        """The digest in ``data``, or why it cannot be read. To be asked for once: it will be changed."""
        before, found = self._read.pop(member, (b"", ""))
        return found if before == data else self._digest(host, data)

    def _digest(self, host: str, data: bytes) -> Digest | str:
        try:
            return read_digest(data, host, self.room)
        except HangdocError as error:
            return error.what


def unfolded(
    meeting: Meeting, own: Digested, digests: Mapping[str, bytes], speakers: Mapping[str, Speaker], reading: Reading
) -> tuple[dict[str, JobSnapshot | str], int]:
    """(member → what its host shows, or why that cannot be read; the last round, 0 if there was none)."""
    found: dict[str, JobSnapshot | str] = {}
    unfolding = Unfolding(own, reading.room)
    for member, data in digests.items():
        digest = reading.taken(member, speakers[member].host, data)
        if isinstance(digest, str):
            found[member] = digest
        else:
            unfolding.add(member, digest, speakers[member])
    unfolding.compare()
    number = 0
    without: set[str] = set()
    for _ in range(_TRIES):
        wanted = unfolding.wanted(without)
        if not wanted:
            break
        number = meeting.ask(tuple(wanted), wanted)
        without |= wanted.keys() - _taken(meeting, number, unfolding, tuple(wanted))
    return found | unfolding.snapshots(), number


def _taken(meeting: Meeting, number: int, unfolding: Unfolding, members: Collection[str]) -> set[str]:
    """Those of the members whose pieces have come."""
    until = time.monotonic() + _PIECES_SECONDS

    def enough(view: View) -> bool:
        return not isinstance(view, LeadView) or (view.round >= number and view.answers.keys() >= set(members))

    view = meeting.wait_for(enough, max(0.0, until - time.monotonic()))
    answers = view.answers if isinstance(view, LeadView) and view.round >= number else {}
    found = set()
    for member in members:
        data = answers.get(member)
        if isinstance(data, bytes):
            try:
                unfolding.take(member, data)
                found.add(member)
            except HangdocError:
                continue  # another one is asked
    return found
