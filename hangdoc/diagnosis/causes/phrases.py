"""The parts of a message that many rules share: lines, calls, conditions, and where ranks wait."""

from __future__ import annotations

from datetime import datetime, timezone

from hangdoc.diagnosis.calls.history import END, Token
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import is_implicit, is_named_by_library, library_call, plain, words
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import Guard
from hangdoc.diagnosis.state.process import kind_mark
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import COMMUNICATING, MESSAGES, ActivityKind
from hangdoc.model.message import Condition, Message, Place, State, States
from hangdoc.model.operations import message_way
from hangdoc.model.process import Frame
from hangdoc.model.wording import single_spaced


def place(frame: Frame | None) -> Place | str:
    """'train.py:61 train()'; '' where no frame is known."""
    return Place(frame.file, frame.line, plain(frame.function)) if frame is not None else ""


def line_of(frame: Frame | None) -> Place | str:
    """'train.py:61'; '' where no frame is known."""
    return Place(frame.file, frame.line) if frame is not None else ""


def at(frame: Frame | None) -> Message:
    """' at train.py:61 train()', to follow a word; '' where no frame is known."""
    return [" at ", place(frame)] if frame is not None else ""


def cited(guard: Guard, file: str) -> Condition:
    """'`if loss < best:` (train.py:41)'."""
    return Condition(guard.condition, file, guard.line)


def call_name(token: Token | None) -> str:
    """What a person calls it: 'barrier'. What a library does there is said of those who wait, and where it decides."""
    if token is None:
        return "nothing"
    if token.op == END:
        return "the end of the program"
    return "collective" if is_named_by_library(token.op, token.stack) else token.op


def what_a_library_does(token: Token) -> str:
    """'FSDP gathers parameters', or "somelib's report() calls all_gather"."""
    return words(token.stack) or f"{library_call(token.stack) or 'a library'} calls {token.op}"


def call_at(token: Token) -> Message:
    """'barrier at train.py:61 train()'."""
    return [call_name(token), at(token.frame)]


def is_awaited(token: Token) -> bool:
    """True if only the wait for an asynchronous call, or for a device, was seen: its line is not the line that made the
    call."""
    return not token.named or (not token.created_ns and bool(token.stack) and not is_library(token.stack[0]))


def doing(activity: Activity) -> Message:
    """What a rank does, with its line."""
    return [single_spaced(activity.text), at(activity.where)]


def waiting_at(case: Case, ranks: tuple[int, ...], labels: dict[str, Message] | None = None) -> Message:
    """Where those ranks wait now, in a few words: 'in all_reduce at train.py:61 train() (FSDP reduces gradients)'.

    ``labels``: what libraries do, and where that was said before; it is said once.
    """
    stuck = [case.activities[r] for r in ranks if r in case.activities]
    first = next((a for a in stuck if a.kind in COMMUNICATING), next(iter(stuck), None))
    if first is None:
        return ""
    mark = kind_mark(first.stack)
    # Of a main thread that waits for its own thread, which waits in the call, only the call is told.
    by_thread = first.op if mark is not None and mark.kind not in COMMUNICATING else None
    if first.landmark and is_implicit(first.stack):
        call = first.op or (str(first.kind) if first.kind in MESSAGES else "a collective")
        here = at(first.where)
        known = labels is not None and labels.setdefault(first.landmark, here) != here
        return ["in ", call, here, "" if known else f" ({first.landmark})"]
    return ["in ", by_thread or first.landmark or first.op or first.text, at(first.where)]


def where_they_wait(case: Case, ranks: tuple[int, ...]) -> Message:
    """'ranks 0, 1 and 3 wait in backward() at train.py:61 train(); rank 2 is at train.py:9 save() (sleeping)'; '' where
    none of them was seen."""
    seen = [rank for rank in ranks if rank not in case.hidden]
    labels: dict[str, Message] = {}
    return States(tuple(_state(case, rank, labels) for rank in seen)) if seen else ""


def _state(case: Case, rank: int, labels: dict[str, Message]) -> State:
    activity = case.activities[rank]
    if activity.kind in COMMUNICATING:
        return State(rank, "waits", "wait", waiting_at(case, (rank,), labels))
    gone, end = activity.kind is ActivityKind.EXITED, case.ranks[rank].exit
    if activity.where is not None and not gone:
        return State(rank, "is", "are", ["at ", place(activity.where), f" ({activity.text})"])
    if gone and end is not None and end.exception:
        return State(rank, "ended", "ended", [activity.text.removeprefix("ended "), at(activity.where)])
    one, many = ("is", "are") if not gone else ("was", "were") if end is not None and end.signal else ("has", "have")
    return State(rank, one, many, [activity.text, at(activity.where)] if gone else activity.text)


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
