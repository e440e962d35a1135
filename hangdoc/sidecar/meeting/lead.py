"""What the watch beside rank 0 does in a meeting: it listens to the others, asks for snapshots, gives the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hangdoc.sidecar.meeting.boards import Board, take_parts
from hangdoc.sidecar.meeting.records import CALM_SECONDS, Beat, Orders, Verdict, addressed, read, written
from hangdoc.sidecar.meeting.wishes import (
    CALM_OF_MANY_SECONDS,
    FEW_HOSTS,
    MANY_HOSTS,
    MOST_PARTS,
    SILENT_BEATS,
    SILENT_SECONDS,
    Wishes,
)

_SLACK = 1.0
"""Seconds by which hosts may see one and the same stall begin at different times: they look once a second."""
_MOST_BYTES = 1 << 30
"""Of all snapshots that are held, packed: 0.2 MB for each of 5,000 hosts. The job beside us needs its memory too.
Judgement."""
_NO_ROOM = "the hosts' snapshots are too large together"
_QUICK, _QUICKEST = 1.0, 0.25
"""Seconds between two looks of a member while a round is on, of many members and of few. Judgement."""
_LOOKS = 1000
"""Of all members together in a second, as far as that. Judgement: the store answers 30,000 questions in a second."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Another watch, as the lead knows it. ``heard_at``: when its last new beat came, of the lead's monotonic clock."""

    beat: Beat
    heard_at: float
    refused: str = ""
    """Why it does not fit this job; '' if it does."""
    silent_after: float = SILENT_SECONDS
    """Seconds without a new beat."""

    def silent(self, now: float) -> bool:
        """True if nothing has been heard of it for too long, although it has not left."""
        return not self.beat.left and now - self.heard_at > self.silent_after

    def moves(self, now: float) -> bool:
        """True if its ranks moved when it was last heard of, which is not long ago."""
        return self.beat.still is None and not (self.refused or self.beat.left or self.silent(now))

    def works(self, now: float, patience: float) -> bool:
        """True if its ranks moved within ``patience`` seconds, as far as has been heard."""
        if self.refused or self.beat.left or self.silent(now):
            return False
        return self.beat.still is None or self.beat.still + (now - self.heard_at) < patience - _SLACK


@dataclass(frozen=True, slots=True)
class LeadView:
    """What the watch may know of the meeting that it leads. ``answers``: by member, of the current round."""

    seats: tuple[Seat, ...] = ()
    round: int = 0
    asked: tuple[str, ...] = ()
    answers: Mapping[str, bytes | str] = field(default_factory=dict)
    """The bytes of a snapshot, a digest or pieces, or why there are none."""
    ends: Mapping[str, bytes] = field(default_factory=dict)
    """By member that has left: the snapshot of how its ranks ended."""
    heard: int = 0
    """The round of the latest verdict that has reached everybody who is not silent."""

    def fitting(self) -> tuple[Seat, ...]:
        """The watches that belong to the job."""
        return tuple(seat for seat in self.seats if not seat.refused)


class Lead:
    """Takes one step at a time. ``me``: the member's name under which its own watch is known."""

    def __init__(self, board: Board, me: str, host: str, *, since: int = 0) -> None:
        """``since``: the round that was the last one of an earlier meeting, whose verdict is of no interest here."""
        self._board = board
        self._orders = Orders(me, host, 0, since, since)
        self._asked: tuple[str, ...] = ()
        self._beats: dict[str, bytes] = {}
        self._seats: dict[str, Seat] = {}
        self._forgotten: dict[str, int] = {}
        """By member: the number of the last beat of a watch that is no part of the job any more."""
        self._answers: dict[str, bytes | str] = {}
        self._ends: dict[str, bytes] = {}

    def step(self, now: float, wishes: Wishes) -> LeadView:
        """Listen to all, and say what there is to say. Raises ``OSError`` and ``ValueError`` for a board that fails."""
        self._listen(now, wishes)
        if wishes.round > self._orders.round:
            self._begin_round(wishes)
        if wishes.verdict is not None and wishes.verdict.round > self._orders.verdict:
            self._publish(wishes.verdict)
        moving = wishes.standing.still is None or any(seat.moves(now) for seat in self._seats.values())
        refused = tuple(member for member, seat in self._seats.items() if seat.refused)
        hosts = {seat.beat.identity or member for member, seat in self._seats.items() if not seat.refused}
        self._calm_down(CALM_OF_MANY_SECONDS if len(hosts) > MANY_HOSTS else CALM_SECONDS)
        self._orders = replace(
            self._orders,
            number=self._orders.number + 1,
            waiting=moving,
            refused=refused,
            digests=len(hosts) > FEW_HOSTS,
            pause=min(_QUICK, max(_QUICKEST, len(self._seats) / _LOOKS)),
        )
        self._board.put("lead", written(self._orders))
        self._collect()
        return LeadView(
            seats=tuple(self._seats.values()),
            round=self._orders.round,
            asked=self._asked,
            answers=dict(self._answers),
            ends=dict(self._ends),
            heard=self._heard(now),
        )

    def _calm_down(self, calm: float) -> None:
        """Allow all watches to be so calm from now on. Never less than before: some may not have heard it yet."""
        if calm > self._orders.calm:
            self._orders = replace(self._orders, calm=calm)
            for member, seat in self._seats.items():
                self._seats[member] = replace(seat, silent_after=SILENT_BEATS * calm)

    # Its branches are what a beat can be: absent, damaged, old, a member's last.
    def _listen(self, now: float, wishes: Wishes) -> None:
        members = [member for member in self._board.members() if member != self._orders.member]
        said = self._board.get_all([f"beat/{member}" for member in members])
        for member, text in zip(members, said, strict=True):
            if text is not None and text == self._beats.get(member):
                continue  # most are the same as at the last look
            try:
                beat = read(Beat, text) if text is not None else None
            except ValueError:
                continue  # damaged: as good as silence
            if beat is None or beat.member != member:
                continue
            self._beats[member] = text or b""
            known = self._seats.get(member)
            if beat.number > (known.beat.number if known is not None else self._forgotten.get(member, -1)):
                self._seats[member] = Seat(beat, now, silent_after=SILENT_BEATS * self._orders.calm)
            if beat.left and member not in self._ends:
                self._take_end(member)
        own = frozenset(wishes.standing.ranks)
        for member, seat in self._seats.items():
            # Of the job as it is now: it may have been started anew since.
            why = _misfit(seat.beat, own, wishes.standing.world)
            if why != seat.refused:
                self._seats[member] = replace(seat, refused=why)
        self._refuse_doubles(now)
        self._forget_replaced(now, wishes)

    def _forget_replaced(self, now: float, wishes: Wishes) -> None:
        """Watches that are heard of no more and whose ranks are others' by now, or no ranks of the job any more: those
        of a node that has left an elastic job, or whose ranks were started anew on another host."""
        gone = {member for member, seat in self._seats.items() if seat.beat.left or seat.silent(now)}
        if not gone:
            return
        living = (seat for member, seat in self._seats.items() if member not in gone and not seat.refused)
        taken = {rank for seat in living for rank in seat.beat.ranks}.union(wishes.standing.ranks)
        for member in gone:
            seat = self._seats[member]
            if member not in self._ends and (seat.refused or (seat.beat.ranks and taken.issuperset(seat.beat.ranks))):
                self._forgotten[member] = self._seats.pop(member).beat.number

    def _take_end(self, member: str) -> None:
        try:
            found = take_parts(self._board, f"end/{member}", MOST_PARTS)
        except ValueError:
            found = None
        if found and self._has_room(found):
            self._ends[member] = found

    def _refuse_doubles(self, now: float) -> None:
        """Of two watches that both claim a rank, the later one does not fit, unless the first is gone."""
        owners: dict[int, str] = {}
        for member, seat in self._seats.items():
            if seat.refused or seat.beat.left or seat.silent(now):
                continue
            double = next((rank for rank in seat.beat.ranks if rank in owners), None)
            if double is not None:
                other = self._seats[owners[double]].beat.host
                self._seats[member] = replace(seat, refused=f"{other} has rank {double} too")
            owners |= dict.fromkeys(seat.beat.ranks, member)

    def _collect(self) -> None:
        for member in self._asked:
            seat = self._seats.get(member)
            if member in self._answers or seat is None or seat.beat.answered < self._orders.round:
                continue
            try:
                found = take_parts(self._board, f"part/{self._orders.round}/{member}", MOST_PARTS)
            except ValueError as error:
                self._answers[member] = str(error)
                continue
            if found is not None:
                self._answers[member] = found if self._has_room(found) else _NO_ROOM

    def _has_room(self, more: bytes) -> bool:
        held = sum(map(len, self._ends.values())) + sum(len(a) for a in self._answers.values() if isinstance(a, bytes))
        return held + len(more) <= _MOST_BYTES

    def _begin_round(self, wishes: Wishes) -> None:
        self._answers.clear()
        for name in (f"verdict/{self._orders.verdict - 1}", f"asked/{self._orders.round}"):
            self._board.drop(name)
        for member, names in (wishes.pieces or {}).items():
            self._board.put(f"want/{wishes.round}/{member}", " ".join(names).encode())
        self._board.put(f"asked/{wishes.round}", addressed(wishes.asked))
        self._asked = wishes.asked
        self._orders = replace(self._orders, round=wishes.round, pieces=wishes.pieces is not None)

    def _publish(self, verdict: Verdict) -> None:
        self._board.put(f"verdict/{verdict.round}", written(verdict))
        self._orders = replace(self._orders, verdict=verdict.round)
        self._asked = ()
        self._answers.clear()

    def _heard(self, now: float) -> int:
        listening = (seat for seat in self._seats.values() if not (seat.refused or seat.silent(now)))
        return min((seat.beat.heard for seat in listening), default=self._orders.verdict)


def _misfit(beat: Beat, own: frozenset[int], world: int) -> str:
    """Why a watch with such a beat does not belong to the job of ``world`` ranks, ``own`` of them on the lead's host;
    '' if it does."""
    if world and beat.world and beat.world != world:
        return f"its ranks are in a job of {beat.world} ranks, not of {world}"
    if world and any(rank >= world for rank in beat.ranks):
        return f"it has rank {max(beat.ranks)}, and there are {world} ranks"
    if double := own.intersection(beat.ranks):
        return f"rank {min(double)} runs on this host"
    return ""
