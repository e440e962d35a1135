"""What a digest leaves out, in pieces that many hosts have in common, and how a piece is known without being sent.

A piece is a stack, the members of a group, a part of a rank's history, or what a rank tested in order. Its identity is
a hash of what it says of the job's behaviour: not when, by which process or in which group something was done. So ranks
that behave alike have the same pieces, and of 8,000 ranks only the few different pieces have to be sent. A history is
cut wherever the number of a call divides by ``EVERY``. For example, of ranks with the calls 1 to 150 and 1 to 149 of a
group the parts 1 to 64 are the same piece, and of a rank that issued another call 100 as well.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass

from hangdoc.model.branches import BranchCounts
from hangdoc.model.journal import Call, PointToPoint
from hangdoc.model.process import Frame, Stack
from hangdoc.model.snapshot import JobSnapshot
from hangdoc.sidecar.meeting.recorded_tests import Recorded, Ring

EVERY = 64
"""Calls of a group between two cuts. Judgement: a hash of 32 letters for about 64 calls."""
LAST = 16
"""Calls at the end of a history whose arguments tell one piece from another (see ``identity``). As the diagnosis."""
SMALL_GROUP = 8
"""Members of a group that are not worth a piece."""
REFERENCE = "#"
"""A stack whose only frame has this file stands for another one: its line is the row in ``Digest.stacks``."""

SAME = -1
"""A thread with this number stands for those that were at the last look as they are at this one: its name says at which
places in the list of threads ('0 3 4')."""

Members = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a rank's history.

    Groups are numbered as they appear ('0', '1'), stacks by their place in ``stacks``, threads as ``Digest`` says, and
    peers by how much further on they are among the group's members. The times are those of the rank that it is from.
    """

    calls: tuple[Call, ...] = ()
    messages: tuple[PointToPoint, ...] = ()
    after: tuple[int, ...] = ()
    """For each message, how many of the calls were issued before it."""
    stacks: tuple[str, ...] = ()
    """Identities."""
    last: bool = False
    """It is the end of the history."""


Piece = Stack | Members | Part | Ring


@dataclass(frozen=True, slots=True)
class History:
    """Of which parts a rank's journal consists."""

    rank: int
    """Index into ``JobSnapshot.ranks``."""
    parts: tuple[int, ...]
    """Rows of ``Digest.parts``."""
    groups: tuple[str, ...]
    called: tuple[tuple[int, ...], ...]
    """For each part, which of ``groups`` its numbers mean."""
    since: int = 0
    """When the first call or message was issued that has not completed, in Unix ns; 0: all have."""


@dataclass(frozen=True, slots=True)
class Digest:
    """What one host shows, without what it may have in common with others.

    In ``job``, stacks are references (``REFERENCE``), so are the members of large groups (-1 and the row); journals
    have no calls, messages and stacks; the first look has no threads that are the same at the second (``SAME``).
    Threads of a rank are numbered, its main thread is 1. Of ranks that are only expected, which every host lists, there
    is one, and ``expected`` says what others are like it.
    """

    job: JobSnapshot
    stacks: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    histories: tuple[History, ...] = ()
    expected: tuple[tuple[int, int, int], ...] = ()
    """(index of a rank, the first rank like it, how many follow each other)."""
    issued: tuple[tuple[str, int, int, int], ...] = ()
    """(group, number of the call, when the first and the last rank issued it, in Unix ns), to compare clocks by."""
    tests: tuple[BranchCounts, ...] = ()
    """That ranks of the host have recorded, without counts."""
    recorded: tuple[Recorded, ...] = ()


@dataclass(frozen=True, slots=True)
class Pieces:
    """What the lead has asked a host for."""

    stacks: tuple[Stack, ...] = ()
    members: tuple[Members, ...] = ()
    parts: tuple[Part, ...] = ()
    rings: tuple[Ring, ...] = ()


def in_order(part: Part) -> Iterator[Call | PointToPoint]:
    """All that was issued, in that order."""
    messages = list(zip(part.after, part.messages, strict=True))[::-1]
    for number, call in enumerate(part.calls):
        while messages and messages[-1][0] <= number:
            yield messages.pop()[1]
        yield call
    while messages:
        yield messages.pop()[1]


def identity(piece: Piece) -> str:
    """What the piece is known by. Any two pieces of one identity may stand for each other in a diagnosis.

    Of calls that have completed, arguments count only at the end of a history: the backend has made sure that those of
    all ranks fitted.
    """
    if isinstance(piece, Part):
        said: object = [piece.last, *(_entry(entry, piece) for entry in in_order(piece))]
    elif isinstance(piece, Ring):
        said = astuple(piece)
    elif piece and isinstance(piece[0], Frame):
        said = [_frame(frame) for frame in piece if isinstance(frame, Frame)]
    else:
        said = piece
    text = json.dumps(said, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _frame(frame: Frame) -> Sequence[object]:
    known = [(local.name, local.value, local.argument) for local in frame.locals]
    return frame.file, frame.line, frame.function, known


def _entry(entry: Call | PointToPoint, part: Part) -> Sequence[object]:
    stack = part.stacks[entry.stack] if 0 <= entry.stack < len(part.stacks) else ""
    whole = part.last or not entry.completed
    alike = (entry.op, entry.group, stack, entry.completed, entry.state, entry.thread_id, entry.timeout_ms)
    if isinstance(entry, Call):
        sizes = entry.input_sizes, entry.output_sizes
        arguments = (*sizes, entry.input_dtypes, entry.root) if whole else ()
        return *alike, entry.sequence, entry.thread_name, arguments
    return *alike, entry.peer, entry.tag, entry.batch, entry.sizes if whole else ()
