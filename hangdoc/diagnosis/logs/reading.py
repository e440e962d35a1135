"""What one kind of evidence allows to conclude, and the words that readings share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import IntEnum

from hangdoc.diagnosis.logs.known import DEFAULT, STORE, Known
from hangdoc.diagnosis.logs.meetings import Meeting
from hangdoc.model.diagnosis import Side
from hangdoc.model.kinds import Confidence, Outcome
from hangdoc.model.logged import Overdue
from hangdoc.model.logged import Place as Source
from hangdoc.model.message import Does, Message, Place, joined
from hangdoc.model.process import Frame, Stack

_LONG = 8
NO_CAUSE = "HD113"
"""A rank is behind, and the cause is open."""


class Strength(IntEnum):
    """What a reading rests on, the strongest first. A proof that calls differ explains more than who is missing, and
    that a rank failed explains why it is missing; silence is the weakest."""

    CLASH = 1
    FAILURE = 2
    BEHIND = 3
    CIRCLE = 4
    SET_UP = 5
    NOT_SEEN = 6
    MESSAGE = 7
    ALL_ARRIVED = 8
    ALONE = 9
    ENDED = 10
    FACTS = 11


@dataclass(frozen=True, slots=True)
class Reading:
    """A conclusion. ``culprits`` may be empty: then ``alternatives`` are the ranks that it could be, if any."""

    strength: Strength
    outcome: Outcome
    verdict: Message
    code: str = ""
    culprits: tuple[int, ...] = ()
    confidence: Confidence = Confidence.POSSIBLE
    alternatives: tuple[tuple[int, ...], ...] = ()
    why: Message = ""
    fix: Message = ""
    sure: Message = ""
    meeting: Meeting | None = None
    """The call that it is about."""
    sides: tuple[Side, ...] = ()
    """Each behavior, where they differ."""
    sources: tuple[Source, ...] = ()
    """The lines that show it."""


def name_group(group: str) -> str:
    """'default_pg', 'group 9 (mesh_tp)', 'group 7', 'group mesh_dp' where its number is a hash; '' for one that no line
    names."""
    if group.startswith(STORE):
        return f"key {group[len(STORE) :]}"
    number, _, about = group.partition("(")
    about = about.rstrip(")")
    if about == "default_pg" or (number == DEFAULT and not about):
        return "default_pg"
    if about and len(number) > _LONG:
        return f"group {about}"
    return f"group {number}" + (f" ({about})" if about else "") if number else ""


def name_call(op: str, sequence: int, group: str = "") -> str:
    """'ALLREDUCE #917 of default_pg'."""
    name = op + (f" #{sequence}" if sequence >= 0 else "")
    return f"{name} of {name_group(group)}" if name_group(group) else name


def name_meeting(meeting: Meeting) -> str:
    """The same of a call in which ranks wait."""
    return name_call(meeting.op, meeting.key.sequence, meeting.key.group)


def at_line(calls: Iterable[Overdue]) -> Message:
    """' at train.py:44 step()': where the users' code issued the call, if they all did it there."""
    places = {
        (frame.file, frame.line, frame.function) for call in calls if (frame := user_frame(call.stack)) is not None
    }
    return [" at ", Place(*next(iter(places)))] if len(places) == 1 else ""


def side(ranks: Iterable[int], op: str, stack: Stack = (), group: str = "", sequence: int = -1) -> Side:
    """What ``ranks`` did."""
    number = sequence if sequence >= 0 else None
    return Side(tuple(sorted(ranks)), name_group(group), (), number, op, user_frame(stack), stack)


def user_frame(stack: Stack) -> Frame | None:
    """The innermost frame of the user's own code."""
    from hangdoc.model.frames import is_library_file

    return next((frame for frame in stack if not is_library_file(frame.file)), None)


_LATEST = 2**33
"""Seconds since 1970: later times are no times of a job."""


def since(meeting: Meeting) -> str:
    """', since 18:34:12'; '' where the log has no times, or absurd ones."""
    at = meeting.since
    return f", since {datetime.fromtimestamp(at, timezone.utc):%H:%M:%S}" if 0 < at < _LATEST else ""


def where_now(known: Known, ranks: Iterable[int]) -> Message:
    """Where a pasted stack shows each of a few ranks: its own line, else the native function."""
    said: list[Message] = []
    for rank in list(ranks)[:2]:
        stack = next((each for each in known.logged.stacks if each.rank == rank and each.main), None)
        if stack is None or not stack.frames:
            continue
        frame = None if stack.native else user_frame(stack.frames)
        inside: Message = [" in ", stack.frames[0].function]
        if frame is not None:
            inside = [" at ", Place(frame.file, frame.line, frame.function)]
        said.append([f"in {stack.place.file} ", Does((rank,), "is", "are"), inside])
    return joined(*said)


def waiters(meeting: Meeting) -> Message:
    """'Ranks 0 and 1 wait in ALLREDUCE #7 of default_pg at train.py:9, since 18:34:12'."""
    ranks = tuple(sorted(meeting.waiting))
    return [
        Does(ranks, "waits", "wait"),
        f" in {name_meeting(meeting)}",
        at_line(meeting.waiting.values()),
        since(meeting),
    ]


def last_words(known: Known, ranks: Iterable[int]) -> Message:
    """What each of a few ranks wrote last of its own work, with the line."""
    said = [
        f"the last line of rank {rank}'s own work is “{stream.last}” ({stream.place.file}:{stream.place.line})"
        for rank in list(ranks)[:2]
        if (stream := known.streams.get(rank)) is not None and stream.last
    ]
    return "; ".join(said)
