"""Ranks that wait for each other within one communicator, which takes all that it is given in the order of issue.

A collective of a group and a batch of messages in it share the group's communicator. So what a rank issued behind its
first incomplete call waits for that call, whatever the program does next. Where one rank needs of a second what is
behind the second's first incomplete call, and so on around a circle, none of them ever goes on. That is so in whatever
order the ranks wrote their dumps: of a job that runs, no circle can be seen.

Example: rank 0 is in a batch with rank 1, whose side rank 1 issued behind an all_reduce, and the all_reduce needs rank
0, which has issued it behind that batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hangdoc.diagnosis.calls.history import GroupHistory, GroupKey, RankProgram
from hangdoc.diagnosis.calls.message_pairs import paired
from hangdoc.diagnosis.calls.streams import Front, Streams
from hangdoc.model.journal import PointToPoint


def locked_in_one_order(
    programs: Mapping[int, RankProgram], histories: Sequence[GroupHistory], streams: Streams
) -> bool:
    """True if such a circle is there."""
    if any(program.journal.point_to_points and not program.journal.has_all_messages for program in programs.values()):
        return False  # what a ring has forgotten may be the other side of a message
    at: dict[int, tuple[GroupKey, Front]] = {}
    for rank, front in streams.fronts.items():
        if front.call is not None:
            at[rank] = front.call.group, front
        elif front.messages[0].batch:
            at[rank] = programs[rank].key(front.messages[0].group), front
    if not any(front.messages for _, front in at.values()):
        return False  # collectives of one group never wait in a circle
    partner = _partners(programs)
    history_of = {history.key: history for history in histories}
    needs = {
        rank: {
            other
            for other in (
                _held_back_in_call(history_of.get(group), front, at)
                if front.call is not None
                else _held_back(front, at, partner)
            )
            if other in at and at[other][0] == group
        }
        for rank, (group, front) in at.items()
    }
    while free := [rank for rank, others in needs.items() if not others]:
        for rank in free:
            del needs[rank]
        for others in needs.values():
            others.difference_update(free)
    return bool(needs)


def _partners(programs: Mapping[int, RankProgram]) -> dict[int, PointToPoint]:
    """A message's identity → the other side of it."""
    found = {}
    for send, recv in paired({rank: program.journal for rank, program in programs.items()}):
        found[id(send.message)], found[id(recv.message)] = recv.message, send.message
    return found


def _held_back(
    front: Front, at: Mapping[int, tuple[GroupKey, Front]], partner: Mapping[int, PointToPoint]
) -> list[int]:
    """The peers whose side of a message of the batch comes behind what they are at."""
    found = []
    for message in front.messages:
        other, there = partner.get(id(message)), at.get(message.peer)
        if there is None or (other is not None and other.completed):
            continue
        if other is None or not any(other is each for each in there[1].messages):
            found.append(message.peer)
    return found


def _held_back_in_call(
    history: GroupHistory | None, front: Front, at: Mapping[int, tuple[GroupKey, Front]]
) -> list[int]:
    """The members that come to the call behind what they are at."""
    if history is None or front.call is None:
        return []
    number, found = front.call.sequence, []
    for member in history.members:
        token, there = history.at(member, number), at.get(member)
        if there is None:
            continue
        here = there[1].call is not None and there[1].call.sequence == number
        if not here and (history.issued(member) < number if token is None else token.pending):
            found.append(member)
    return found
