"""Where all ranks stand, group by group and message by message: the stage on which ``repair`` tries its edits.

What counts is what was *issued*: on a device (NCCL) the steps of a rank end one after the other, and only the first
that has not ended holds the rank up. Numbers are compared within one channel alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

from hangdoc.diagnosis.bounds import TRIED
from hangdoc.diagnosis.calls.history import GroupHistory, RankProgram
from hangdoc.diagnosis.calls.repair import Channel, Stage, Step
from hangdoc.model.journal import PointToPoint
from hangdoc.model.operations import message_way

_NONE: Mapping[int, int | None] = MappingProxyType({})


def stage(
    programs: Mapping[int, RankProgram],
    histories: Sequence[GroupHistory],
    *,
    ended: Collection[int] = (),
    unknown: Collection[int] = (),
    outside: Mapping[int, int | None] = _NONE,
) -> Stage:
    """The stage of a job with journals.

    ``unknown``: ranks that may have issued anything. ``outside``: rank whose main thread is in no call → that thread's
    number, or None where it is not known: the thread does not wait for what it has issued.
    """
    found = _Gathered(programs, outside)
    found.calls({history.key: history for history in histories})
    found.messages()
    found.from_anyone()
    under_way = {
        rank: tuple(step for _, step in sorted(steps, key=lambda each: each[0]))
        for rank, steps in found.under_way.items()
    }
    unseen = {member for members in found.ends.values() for member in members} - programs.keys()
    return Stage(
        found.ends,
        found.issued,
        under_way,
        either=frozenset(found.either),
        ended=frozenset(ended),
        in_order=frozenset(rank for rank in under_way if _is_in_order(programs[rank])),
        unknown=frozenset({*unknown, *unseen}),
        lanes=found.lanes,
    )


def _is_in_order(program: RankProgram) -> bool:
    # Messages of one batch end in any order.
    return program.recording.runs_ahead and not program.journal.point_to_points


class _Gathered:
    """The channels, and what was issued of them."""

    def __init__(self, programs: Mapping[int, RankProgram], outside: Mapping[int, int | None]) -> None:
        self._programs, self._outside = programs, outside
        self._threads: dict[int, dict[int, int]] = {}
        self.ends: dict[Channel, tuple[int, ...]] = {}
        self.issued: dict[tuple[int, Channel], int] = {}
        self.lanes: dict[tuple[int, Channel], int] = {}
        self.either: set[Channel] = set()
        self.under_way: defaultdict[int, list[tuple[int, Step]]] = defaultdict(list)
        """Rank → (when it issued the step, the step)."""

    def calls(self, groups: Mapping[Channel, GroupHistory]) -> None:
        """Those of the groups in which a call is under way."""
        for rank, program in self._programs.items():
            for token in program.pending[:TRIED]:
                if token.group in groups and (token.state or not self._is_outside(rank, token.thread_id)):
                    lane = self._lane(rank, token.thread_id)
                    step = Step(token.group, token.sequence, (token.op, token.sizes), lane)
                    self.under_way[rank].append((token.created_ns, step))
        for key in {step.channel for steps in self.under_way.values() for _, step in steps}:
            history = groups[key]
            self.ends[key] = history.members
            self.issued.update({(rank, key): history.issued(rank) for rank in history.members})
            last = {rank: calls[-1] for rank, calls in history.tokens.items() if calls}
            # Ranks of equal calls have one list of them in common.
            self.lanes.update({(rank, key): self._lane(call.rank, call.thread_id) for rank, call in last.items()})

    def messages(self) -> None:
        """Those whose sender and receiver are known. Where old ones are forgotten, only what is under way counts."""
        for rank, program in self._programs.items():
            numbers: Counter[Channel] = Counter()
            for message in program.journal.point_to_points:
                way = message_way(message.op)
                if not way or message.peer not in self._programs:
                    continue
                ends = (rank, message.peer) if way == "send" else (message.peer, rank)
                whole = all(self._programs[end].journal.has_all_messages for end in ends)
                if whole or not message.completed:
                    channel = message.group, *ends, message.tag
                    numbers[channel] += 1
                    self._message(channel, ends, rank, numbers[channel], message)

    def from_anyone(self) -> None:
        """What is received from whoever sends it, and is under way."""
        everyone = tuple(sorted(self._programs))
        for rank, message in self._any_source():
            channel = message.group, rank, message.tag
            self.either.add(channel)
            self._message(channel, everyone, rank, self.issued.get((rank, channel), 0) + 1, message)

    def _any_source(self) -> Iterator[tuple[int, PointToPoint]]:
        for rank, program in self._programs.items():
            for message in program.journal.point_to_points:
                if message.peer < 0 and not message.completed and message_way(message.op) == "recv":
                    yield rank, message

    def _message(self, channel: Channel, ends: tuple[int, ...], rank: int, number: int, message: PointToPoint) -> None:
        lane = self._lane(rank, message.thread_id)
        self.ends[channel], self.issued[rank, channel], self.lanes[rank, channel] = ends, number, lane
        if not message.completed and (message.state or not self._is_outside(rank, message.thread_id)):
            self.under_way[rank].append((message.created_ns, Step(channel, number, "", lane)))

    def _is_outside(self, rank: int, thread: int) -> bool:
        return rank in self._outside and self._outside[rank] in (None, thread)

    def _lane(self, rank: int, thread: int) -> int:
        """The number of the rank's thread, as they appear, that of its first call first, so that ranks compare."""
        if rank not in self._threads:
            calls = self._programs[rank].journal.calls
            self._threads[rank] = {calls[0].thread_id: 0} if calls else {}
        return self._threads[rank].setdefault(thread, len(self._threads[rank]))
