"""The line from which a rank issues the messages that another one takes at the line at which it waits now.

Messages that have found each other before tell which lines belong together. Example: rank 2 waits in the recv at line
52, and whatever it took there before rank 1 had sent at line 45, so that this is the message which is missing, though
rank 1 sends another one at line 47 now.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from hangdoc.diagnosis.calls.message_pairs import paired
from hangdoc.diagnosis.condition.elsewhere.answers import Answer
from hangdoc.diagnosis.condition.elsewhere.set_before import set_by
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import fork, user_stack
from hangdoc.diagnosis.source.settings import argument_of, place_of
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import function_name, holds, last_name, names_in, text_of, walk
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.operations import message_way
from hangdoc.model.process import Frame, Stack

_Line = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Matching:
    """``rank`` issued the last of these messages from ``stack``; ``lines``: from which any of them was issued."""

    rank: int
    op: str
    """'send' or 'recv'."""
    stack: Stack
    lines: frozenset[_Line]

    def issues(self, frame: Frame | None) -> bool:
        """True if one of these messages was issued from that line."""
        return frame is not None and (frame.file, frame.line) in self.lines


def issued_from(case: Case, waiter: Activity) -> Stack:
    """The stack that issued the message for which the rank waits now: of `work = dist.irecv(x, 3) ⏎ work.wait()` the
    first line. Where that was not recorded, the stack at which it waits."""
    journal = case.ranks[waiter.rank].journal
    way = "recv" if waiter.kind == ActivityKind.RECV else "send"
    for each in case.waiting_messages.get(waiter.rank, []):
        if journal is not None and each.message.peer == waiter.peer and message_way(each.message.op) == way:
            return journal.stack(each.message.stack)
    return waiter.stack


def matching(case: Case, waiter: Activity, peer: int) -> Matching | None:
    """The messages that were taken, or given, at the line at which the waiter waits: those that it exchanged with the
    peer, else those of other ranks; None where there are none."""
    here = _line(user_stack(issued_from(case, waiter)))
    journals = {rank: each.journal for rank, each in case.ranks.items() if each.journal is not None}
    op = "send" if waiter.kind == ActivityKind.RECV else "recv"
    own: list[tuple[int, Stack]] = []
    others: list[tuple[int, Stack]] = []
    for pair in paired(journals):
        took, gave = reversed(pair) if waiter.kind == ActivityKind.RECV else pair
        at, way = (user_stack(journals[each.rank].stack(each.message.stack)) for each in (took, gave))
        if here is not None and way and _line(at) == here:
            mine = (took.rank, gave.rank) == (waiter.rank, peer)
            (own if mine else others).append((gave.rank, journals[gave.rank].stack(gave.message.stack)))
    found = own or others
    lines = frozenset(line for _, stack in found if (line := _line(user_stack(stack))) is not None)
    return Matching(found[-1][0], op, found[-1][1], lines) if found else None


def has_gone_past(case: Case, stack: Stack, rank: int) -> bool:
    """True if the rank is further down in the function that issues the message, and has issued another one there since
    it last came by the line, so that it left this one out.

    Example: it sent at lines 45, 47, 47, and is at line 47.
    """
    way = fork(stack, case.activities[rank].stack)
    there, now = way.frames if way.frames else (None, None)
    journal = case.ranks[rank].journal
    if there is None or now is None or journal is None or there.file != now.file or now.line <= there.line:
        return False
    issued = [_line(user_stack(journal.stack(message.stack))) for message in journal.point_to_points]
    given = _line(user_stack(stack))
    if given not in issued or issued[-1] == given:
        return False
    *before, last = issued
    return _last(before, last) > _last(before, given)


def tag_set_by(sources: Sources, frame: Frame | None) -> list[Answer]:
    """What set the tag that the call at the line gives; [] where it gives none, or nothing decides about it.

    Example: `dist.send(x, nxt, tag=self.sent)`, and `if len(x): ⏎ self.sent += 1` → `self.sent` is counted under the
    `if`.
    """
    tag = _tag_at(sources, frame)
    at = place_of(sources, frame.file, frame.line) if frame is not None else None
    return set_by(sources, at, tag, by_rank=False) if tag is not None and at is not None else []


def of_same_tag(sources: Sources, frame: Frame | None, calls: Sequence[str]) -> Frame | None:
    """The one line of the program that calls one of these with the tag, as it is written, of the call at that line.

    Example: of `dist.recv(shape, src, tag=HEADER)` → the line of `dist.send(shape, dst, tag=HEADER)`.
    """
    tag = _tag_at(sources, frame)
    if tag is None:
        return None
    found = [
        each
        for each in sources.user_calls(*calls)
        if (given := argument_of(each.call, [], *names("tag_local"))) is not None and text_of(given) == text_of(tag)
    ]
    if len({(each.file, each.call.lineno) for each in found}) != 1:
        return None
    return Frame(found[0].file, found[0].call.lineno, function_name(found[0].tree, found[0].call.lineno))


def tag_of_both(sources: Sources, here: Frame | None, there: Frame | None) -> str:
    """How the tag is written at both lines, 'self.tag(micro)'; '' where they write it otherwise, or as a constant."""
    tags = [_tag_at(sources, frame) for frame in (here, there)]
    texts = {text_of(tag) for tag in tags if tag is not None and names_in(tag)}
    return texts.pop() if None not in tags and len(texts) == 1 else ""


def _tag_at(sources: Sources, frame: Frame | None) -> ast.expr | None:
    """What the call at the line gives for its tag."""
    at = place_of(sources, frame.file, frame.line) if frame is not None else None
    if at is None or frame is None:
        return None
    for call in (n for n in walk(at.function) if isinstance(n, ast.Call) and holds(n, frame.line)):
        tag = argument_of(call, [], *names("tag_local"))
        if tag is not None and any(part in f"{last_name(call.func)}(" for part in names("issues_message")):
            return tag
    return None


def _line(stack: Stack) -> _Line | None:
    return (stack[0].file, stack[0].line) if stack else None


def _last(lines: list[_Line | None], line: _Line | None) -> int:
    return max((at for at, each in enumerate(lines) if each == line), default=-1)
