"""The parts of a message that many rules share: lines, calls, conditions, and where ranks wait."""

from __future__ import annotations

from datetime import datetime, timezone

from hangdoc.diagnosis.calls.history import END, Token
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import is_implicit, library_call, plain, words
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import Guard
from hangdoc.diagnosis.state.process import kind_mark
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import COMMUNICATING, ActivityKind
from hangdoc.model.message import Condition, Message, Place, State, States
from hangdoc.model.operations import message_way
from hangdoc.model.process import Frame

MOST_CHOICES = 3
"""Conditions of one kind that a sentence names; chosen by hand."""


def place(frame: Frame | None) -> Place | str:
    """'train.py:61 train()'; '' where no frame is known."""
    return Place(frame.file, frame.line, plain(frame.function)) if frame is not None else ""


def line_of(frame: Frame | None) -> Place | str:
    """'train.py:61'; '' where no frame is known."""
    return Place(frame.file, frame.line) if frame is not None else ""


def at(frame: Frame | None) -> Message:
    """' at train.py:61 train()', to follow a word; '' where no frame is known."""
    return [" at ", place(frame)] if frame is not None else ""


def one_place(case: Case, ranks: tuple[int, ...]) -> Frame | None:
    """The user's line that all of these ranks are at, or ended at; None where it differs, or was not seen."""
    places = {where and (where.file, where.line): where for where in (case.activities[rank].where for rank in ranks)}
    return next(iter(places.values())) if len(places) == 1 else None


def cited(guard: Guard, file: str) -> Condition:
    """'`if loss < best:` (train.py:41)'."""
    return Condition(guard.condition, file, guard.line)


def call_name(token: Token | None) -> str:
    """What a person calls it: 'barrier', or 'all_reduce (DDP gradient synchronisation)'."""
    if token is None:
        return "nothing"
    if token.op == END:
        return "the end of the program"
    mark = (words(token.stack) or library_call(token.stack)) if is_implicit(token.stack) else None
    if mark and token.op in mark:  # without a journal, a landmark is all that is known of the call
        return mark
    return f"{token.op} ({mark})" if mark else token.op


def call_at(token: Token) -> Message:
    """'barrier at train.py:61 train()'."""
    return [call_name(token), at(token.frame)]


def is_awaited(token: Token) -> bool:
    """True if only the wait for an asynchronous call, or for a device, was seen: its line is not the line that made the
    call."""
    return not token.named or (not token.created_ns and bool(token.stack) and not is_library(token.stack[0]))


def doing(activity: Activity) -> Message:
    """What a rank does, with its line."""
    return [activity.text, at(activity.where)]


def waiting_at(case: Case, ranks: tuple[int, ...]) -> Message:
    """Where those ranks wait now, in a few words: 'in backward() at train.py:61 train()'."""
    stuck = [case.activities[r] for r in ranks if r in case.activities]
    first = next((a for a in stuck if a.kind in COMMUNICATING), next(iter(stuck), None))
    if first is None:
        return ""
    mark = kind_mark(first.stack)
    # Of a main thread that waits for its own thread, which waits in the call, only the call is told.
    by_thread = first.op if mark is not None and mark.kind not in COMMUNICATING else None
    return ["in ", by_thread or first.landmark or first.op or first.text, at(first.where)]


def where_they_wait(case: Case, ranks: tuple[int, ...]) -> Message:
    """'ranks 0, 1 and 3 wait in backward() at train.py:61 train(); rank 2 is at train.py:9 save() (sleeping)'; '' where
    none of them was seen."""
    seen = [rank for rank in ranks if rank not in case.hidden]
    return States(tuple(_state(case, rank) for rank in seen)) if seen else ""


def _state(case: Case, rank: int) -> State:
    activity = case.activities[rank]
    if activity.kind in COMMUNICATING:
        return State(rank, "waits", "wait", waiting_at(case, (rank,)))
    gone = activity.kind is ActivityKind.EXITED
    if activity.where is not None:
        one, many = ("was", "were") if gone else ("is", "are")
        return State(rank, one, many, ["at ", place(activity.where), f" ({activity.text})"])
    end = case.ranks[rank].exit
    one, many = ("is", "are") if not gone else ("was", "were") if end is not None and end.signal else ("has", "have")
    return State(rank, one, many, activity.text)


def last_issued(case: Case, rank: int) -> Message:
    """'the last call that rank 5 issued is all_reduce #12 of default_pg at train.py:61 train(), at 14:32:10 UTC'; ''
    where none is known."""
    program = case.programs.get(rank)
    if program is None:
        return ""
    journal = program.journal
    call = program.tokens[-1] if program.tokens else None
    message = journal.point_to_points[-1] if journal.point_to_points else None
    if message is not None and (call is None or message.created_ns > call.created_ns):
        issued = journal.message_issued_ns(len(journal.point_to_points) - 1)
        arrow = "to" if message_way(message.op) == "send" else "from"
        frame = next(iter(user_stack(journal.stack(message.stack))), None)
        what: Message = [f"{message.op} {arrow} rank {message.peer}", at(frame)]
    elif call is not None:
        issued = journal.call_issued_ns(len(journal.calls) - 1)
        label = next((h.label for h in case.histories if h.key == call.group), call.group[0])
        what = [f"{call_name(call)} #{call.sequence} of {label}", at(call.frame)]
    else:
        return ""
    when = datetime.fromtimestamp(issued / 1e9, tz=timezone.utc).strftime("%H:%M:%S UTC") if issued else ""
    return [f"the last call that rank {rank} issued is ", what, f", at {when}" if when else ""]
