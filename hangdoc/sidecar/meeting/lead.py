"""What the watch beside rank 0 does in a meeting: it listens to the others, asks for snapshots, gives the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hangdoc.sidecar.meeting.boards import PART, Board, take_parts
from hangdoc.sidecar.meeting.records import (
    CALM_SECONDS,
    LARGEST_WORLD,
    Beat,
    Orders,
    Verdict,
    addressed,
    read,
    written,
)
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
_MOST_OF_A_RANK = 4
"""Watches that are kept for each rank of the job, and claims to it. One has it; another may have had it before a
restart, and two may claim it by mistake. Judgement."""
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
    said: int = 0
    """A hash of the beat as it was written."""

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
        self._collect(wishes.standing.world)
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

    def _listen(self, now: float, wishes: Wishes) -> None:
        new = self._new_beats()
        self._seat(new, now, wishes.standing.world)
        own = frozenset(wishes.standing.ranks)
        for member, seat in self._seats.items():
            # Of the job as it is now: it may have been started anew since.
            why = _misfit(seat.beat, own, wishes.standing.world)
            if why != seat.refused:
                self._seats[member] = replace(seat, refused=why)
        self._refuse_doubles(now)
        for member in new.keys() & self._seats.keys():
            found = self._seats[member]
            if found.beat.left and not found.refused and member not in self._ends:
                self._take_end(member, wishes.standing.world)
        self._forget_replaced(now, wishes)

    # Its branches are what a beat can be: absent, the same as before, damaged, another's, old.
    def _new_beats(self) -> dict[str, tuple[Beat, int]]:
        """Member → its beat, and a hash of what it wrote, of those that have said something new."""
        members = [member for member in self._board.members() if member != self._orders.member]
        found = {}
        for member, text in zip(members, self._board.get_all([f"beat/{m}" for m in members]), strict=True):
            known = self._seats.get(member)
            if text is None or (known is not None and known.said == hash(text)):
                continue  # most are the same as at the last look
            try:
                beat = read(Beat, text)
            except ValueError:
                continue  # damaged: as good as silence
            before = known.beat.number if known is not None else self._forgotten.get(member, -1)
            if beat.member == member and beat.number > before:
                found[member] = beat, hash(text)
        return found

    def _seat(self, beats: Mapping[str, tuple[Beat, int]], now: float, world: int) -> None:
        """Keep what is new, as far as a job of ``world`` ranks can have so many watches, and they so many ranks."""
        most = _MOST_OF_A_RANK * (world or LARGEST_WORLD)
        claims = sum(len(seat.beat.ranks) for seat in self._seats.values())
        for member, (beat, said) in beats.items():
            known = self._seats.get(member)
            more = len(beat.ranks) - (len(known.beat.ranks) if known is not None else 0)
            if (known is None and len(self._seats) >= most) or (more > 0 and claims + more > most):
                continue  # as good as silence
            claims += more
            self._seats[member] = Seat(beat, now, silent_after=SILENT_BEATS * self._orders.calm, said=said)

    def _forget_replaced(self, now: float, wishes: Wishes) -> None:
        """Watches that are heard of no more and whose ranks are others' by now, or no ranks of the job any more: those
        of a node that has left an elastic job, or whose ranks were started anew on another host. And those that have
        fallen silent without a rank."""
        gone = {member for member, seat in self._seats.items() if seat.beat.left or seat.silent(now)}
        if not gone:
            return
        living = (seat for member, seat in self._seats.items() if member not in gone and not seat.refused)
        taken = {rank for seat in living for rank in seat.beat.ranks}.union(wishes.standing.ranks)
        for member in gone:
            seat = self._seats[member]
            if seat.refused or ((seat.beat.ranks or not seat.beat.left) and taken.issuperset(seat.beat.ranks)):
                self._forgotten[member] = self._seats.pop(member).beat.number
                self._ends.pop(member, None)

    def _take_end(self, member: str, world: int) -> None:
        try:
            found = take_parts(self._board, f"end/{member}", MOST_PARTS)
        except ValueError:
            found = None
        if found and self._has_room(found, world):
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

    def _collect(self, world: int) -> None:
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
                self._answers[member] = found if self._has_room(found, world) else _NO_ROOM

    def _has_room(self, more: bytes, world: int) -> bool:
        """True if ``more`` can be held, too: all hosts have as many snapshots as the job has ranks, at most."""
        most = min(_MOST_BYTES, world * MOST_PARTS * PART) if world else _MOST_BYTES
        held = sum(map(len, self._ends.values())) + sum(len(a) for a in self._answers.values() if isinstance(a, bytes))
        return held + len(more) <= most

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
