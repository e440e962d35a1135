"""Issued, arrived, started, completed: what a device has done of the calls that its CPU has issued.

Where a device executes the calls (NCCL), the CPU runs ahead of it. Per communicator the device takes the calls in their
order, so a rank has *arrived* at no call after the first one there that has not completed. Programs that wait for
their calls, as they do by default, put the calls of all their groups in one order. So a rank is at its *front*: the
first call or message, over all groups, that has not completed.

Example: rank 0 has issued all_reduce #5 and #6, and #5 has not completed → it is at #5, and has not arrived at #6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from hangdoc.diagnosis.calls.history import GroupHistory, RankProgram, Token
from hangdoc.diagnosis.calls.message_pairs import alone
from hangdoc.model.journal import PointToPoint
from hangdoc.model.shared_calls import SharedCalls


class Kernel(Enum):
    """What a rank's device has done of one call."""

    MISSING = "missing"
    """The rank has not issued the call."""
    WAITING = "waiting"
    """Issued, and its kernel has not begun: something before it has not ended."""
    RUNNING = "running"
    """Its kernel has begun: the rank is there."""
    UNTIMED = "untimed"
    """Issued and not completed; the recorder was not asked to time kernels, so whether it has begun is open."""
    DONE = "done"
    """Completed."""


@dataclass(frozen=True, slots=True)
class Front:
    """The first call, or the messages of the first batch, that a rank's device has not completed."""

    rank: int
    call: Token | None = None
    messages: tuple[PointToPoint, ...] = ()
    created_ns: int = 0
    timeout_ms: int = 0

    @property
    def started(self) -> bool:
        """True if its kernel is known to run."""
        state = self.call.state if self.call is not None else self.messages[0].state if self.messages else ""
        return state == "started"


class Streams:
    """Which call or message the device of each rank is at."""

    def __init__(self, programs: Mapping[int, RankProgram]) -> None:
        ahead = {rank: p for rank, p in programs.items() if _runs_ahead(p)}
        self._programs = ahead
        self.fronts: dict[int, Front] = {}
        """Rank → its front, for ranks with a call or message under way."""
        for rank, program in ahead.items():
            front = _front(program)
            if front is not None:
                self.fronts[rank] = front
        self.timed = frozenset(rank for rank, program in ahead.items() if _is_timed(program))
        """The ranks whose recorder noticed when kernels began: only there does 'scheduled' mean 'not begun'."""
        self._not_arrived: dict[tuple[int, int], tuple[int, ...]] = {}

    def __bool__(self) -> bool:
        """True if a device executes the calls of any rank."""
        return bool(self._programs)

    def runs_ahead(self, rank: int) -> bool:
        """True if a device executes the rank's calls."""
        return rank in self._programs

    def kernel(self, history: GroupHistory, rank: int, sequence: int) -> Kernel:
        """What the rank's device has done of the group's call with that number."""
        token = history.at(rank, sequence)
        if token is None:
            return Kernel.DONE if history.issued(rank) >= sequence else Kernel.MISSING
        if not token.pending:
            return Kernel.DONE
        if token.state == "started":
            return Kernel.RUNNING
        if self._is_yet_to_come(rank, token):
            return Kernel.WAITING
        return Kernel.WAITING if rank in self.timed else Kernel.UNTIMED

    def not_arrived(self, history: GroupHistory, sequence: int) -> tuple[int, ...]:
        """The members that have issued the call and have not arrived at it: their device is at an earlier one."""
        key = (id(history), sequence)
        if key not in self._not_arrived:
            found = []
            for rank in history.members:
                token = history.at(rank, sequence) if rank in self._programs else None
                if token is not None and token.pending and self._is_yet_to_come(rank, token):
                    found.append(rank)
            self._not_arrived[key] = tuple(found)
        return self._not_arrived[key]

    def awaited(self, rank: int) -> tuple[int, ...]:
        """The ranks without which the rank's front, a batch of messages, cannot complete: those that have not issued
        the other side of one, or else those that have not arrived at it."""
        front = self.fronts.get(rank)
        messages = front.messages if front is not None else ()
        unseen = {m.peer for m in messages if m.peer >= 0 and m.peer not in self._programs}
        missing = {m.peer for m in messages if id(m) in self._alone}
        return tuple(sorted(unseen | missing)) or tuple(
            sorted({m.peer for m in messages if not self._answers(m.peer, rank, m.op)})
        )

    def _answers(self, peer: int, rank: int, op: str) -> bool:
        """True if the peer's device is not at something before the other side of a message of the rank's."""
        front = self.fronts.get(peer)
        return front is None or any(m.peer == rank and m.op != op for m in front.messages)

    @cached_property
    def _alone(self) -> frozenset[int]:
        journals = {rank: program.journal for rank, program in self._programs.items()}
        return frozenset(id(each.message) for each in alone(journals))

    def _is_yet_to_come(self, rank: int, token: Token) -> bool:
        """True if the rank is at something before that pending call, in its own order."""
        front = self.fronts.get(rank)
        if front is None or token.state == "started":
            return False
        if front.call is not None:
            return token.order > front.call.order
        return token.created_ns > front.messages[0].created_ns


def _runs_ahead(program: RankProgram) -> bool:
    return program.recording.runs_ahead or any(m.state for m in program.journal.point_to_points)


def _is_timed(program: RankProgram) -> bool:
    calls = program.journal.calls
    if isinstance(calls, SharedCalls):
        timed = any(part.rows.timed for part in calls.parts)
    else:
        timed = any(c.state == "started" or c.started_ns for c in calls)
    return timed or any(m.state == "started" or m.started_ns for m in program.journal.point_to_points)


def _front(program: RankProgram) -> Front | None:
    """The first call or message under way, by the time it was issued."""
    journal, pending = program.journal, program.recording.pending
    place = pending[0] if pending else None
    waiting = [(m, at) for at, m in enumerate(journal.point_to_points) if not m.completed]
    first, at = min(waiting, key=lambda each: each[0].created_ns) if waiting else (None, -1)
    if place is not None:
        call = journal.calls[place]
        if first is None or call.created_ns <= first.created_ns:
            return Front(program.rank, program.token(place), (), journal.call_issued_ns(place), call.timeout_ms)
    if first is None:
        return None
    alike = (m for m, _ in waiting if first.batch and (m.group, m.batch) == (first.group, first.batch))
    return Front(program.rank, None, tuple(alike) or (first,), journal.message_issued_ns(at), first.timeout_ms)
