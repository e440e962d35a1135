"""What every watch but the lead's does in a meeting: it says how its ranks are, and does what the lead asks for."""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.errors import HangdocError
from hangdoc.sidecar.meeting.boards import Board, put_parts
from hangdoc.sidecar.meeting.records import CALM_SECONDS, Beat, Orders, Verdict, is_addressed, read, written
from hangdoc.sidecar.meeting.wishes import MOST_PARTS, SILENT_SECONDS, Wishes

_STALE_SECONDS = 10.0
"""A watch that has not looked at its ranks for so long says nothing of them. Judgement."""
_STEPS_A_SECOND = 8.0
"""Of a lead: four while a round is on, and one for each thing that its watch wants. Judgement."""
_STEPS_AHEAD = 256
"""More than time allows: a shared folder may show a host what was written a minute ago. Judgement."""
_EXPIRED_SECONDS = 120.0
"""A verdict counts for so long after the lead has asked for this host's snapshot, by this host's clock. Judgement."""


@dataclass(frozen=True, slots=True)
class MemberView:
    """What the watch may know of the meeting."""

    lead: str = ""
    host: str = ""
    """The lead's."""
    asked: int = 0
    """The round in which the lead wants a snapshot of this host, or wants it to listen; 0: none yet."""
    wanted: bool = False
    """The lead wants a snapshot of this watch in that round."""
    digests: bool = False
    """It wants a digest instead, as there are many hosts."""
    pause: float = 0.0
    """Seconds until this watch should look again; 0: as it likes."""
    verdict: Verdict | None = None
    waiting: bool = False
    """The lead says that ranks of some host move."""
    silent: bool = False
    """Nothing has been heard of the lead for too long."""
    refused: bool = False
    """The lead says that this watch's ranks do not fit its job."""


class Member:
    """Takes one step at a time."""

    def __init__(
        self, board: Board, me: str, host: str, identity: str, *, before: tuple[int, bytes] | None = None
    ) -> None:
        """``before``: the answer that an earlier meeting was given."""
        self._board = board
        self._me, self._host, self._identity = me, host, identity
        self._number = 0
        self._said_at = float("-inf")
        self._said: tuple[object, ...] = ()
        self._said_answered = 0
        self._orders: Orders | None = None
        self._heard_at: float | None = None
        self._round, self._asked_at = 0, float("-inf")
        self._wanted = False
        self._answered = before
        self._answered_round = 0
        self._ended = False
        self._verdict: Verdict | None = None

    def step(self, now: float, wishes: Wishes) -> MemberView:
        """Hear what the lead wants, say what is new. Raises ``OSError`` and ``ValueError`` for a board that fails."""
        self._hear(now)
        self._answer(wishes)
        self._say(now, wishes)
        silent = self._heard_at is not None and now - self._heard_at > SILENT_SECONDS
        orders = self._orders
        return MemberView(
            lead=orders.member if orders is not None else "",
            host=orders.host if orders is not None else "",
            asked=self._round,
            wanted=orders is not None and self._wanted and not orders.pieces,
            digests=orders is not None and orders.digests,
            pause=orders.pause if orders is not None else 0.0,
            verdict=self._verdict,
            waiting=orders is not None and orders.waiting,
            silent=silent,
            refused=orders is not None and self._me in orders.refused,
        )

    # Each branch is one thing that orders may say, or a reason not to believe them.
    def _hear(self, now: float) -> None:
        said = self._board.get("lead")
        if said is None:
            raise ValueError("the meeting has no lead")
        orders = read(Orders, said)
        if self._orders is not None and not self._follows(orders, self._orders, now):
            return
        self._heard_at = now
        if self._orders is None:
            self._round = orders.round  # it began without us
        self._orders = orders
        if orders.round > self._round:
            said = self._board.get(f"asked/{orders.round}")  # None: the lead has gone on already
            self._round, self._asked_at = orders.round, now
            self._wanted = said is not None and is_addressed(self._me, said)
        known = self._verdict.round if self._verdict is not None else 0
        if self._me in orders.refused:
            return
        # A verdict of a round that this watch was not there for, or of one long ago, is not about what it sees now.
        if orders.verdict > known and orders.verdict == self._round and now - self._asked_at < _EXPIRED_SECONDS:
            said = self._board.get(f"verdict/{orders.verdict}")
            verdict = read(Verdict, said) if said is not None else None
            if verdict is not None and verdict.round == orders.verdict:
                self._verdict = verdict

    def _follows(self, orders: Orders, known: Orders, now: float) -> bool:
        """True if the lead that said ``known`` can have said ``orders`` since.

        False for the same orders, for earlier ones that somebody has put back, and for those of somebody who wants to
        be so far ahead that the lead is never heard again. What is not heard takes nothing from the meeting: in time it
        becomes possible, or the lead counts as silent.
        """
        allowed = _STEPS_AHEAD + _STEPS_A_SECOND * (now - (self._heard_at or 0.0))
        return 0 < orders.number - known.number <= allowed and orders.round - known.round <= allowed

    def _answer(self, wishes: Wishes) -> None:
        if wishes.answer is not None and wishes.answer is not self._answered:
            self._answered = wishes.answer
            number, data = wishes.answer
            put_parts(self._board, f"part/{number}/{self._me}", data, MOST_PARTS)
            self._answered_round = max(self._answered_round, number)
        if self._wanted and self._orders is not None and self._orders.pieces and self._answered_round < self._round:
            put_parts(self._board, f"part/{self._round}/{self._me}", self._pieces(wishes), MOST_PARTS)
            self._answered_round = self._round
        if wishes.end is not None and not self._ended:
            if wishes.end:
                put_parts(self._board, f"end/{self._me}", wishes.end, MOST_PARTS)
            self._ended = True

    def _pieces(self, wishes: Wishes) -> bytes:
        """Those that the lead wants; nothing where they are gone."""
        name = f"want/{self._round}/{self._me}"
        said = self._board.get(name)
        self._board.drop(name)
        try:
            return wishes.known(said.decode("ascii", "replace").split()) if said and wishes.known is not None else b""
        except HangdocError:
            return b""

    def _say(self, now: float, wishes: Wishes) -> None:
        standing = wishes.standing
        answered = self._answered_round
        if now - standing.at > _STALE_SECONDS and not self._ended and answered == self._said_answered:
            return
        heard = self._verdict.round if self._verdict is not None else 0
        news = (standing.ranks, standing.world, standing.still is None, heard, self._ended, answered)
        calm = self._orders.calm if self._orders is not None else CALM_SECONDS
        if news == self._said and now - self._said_at < calm:
            return
        self._number += 1
        still = None if standing.still is None else standing.still + max(0.0, now - standing.at)
        self._board.put(
            f"beat/{self._me}",
            written(
                Beat(
                    self._me,
                    self._host,
                    self._identity,
                    standing.ranks,
                    standing.world,
                    self._number,
                    still=still,
                    heard=heard,
                    left=self._ended,
                    answered=answered,
                )
            ),
        )
        self._board.enroll(self._me)
        self._said, self._said_at, self._said_answered = news, now, answered
