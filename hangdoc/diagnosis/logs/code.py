"""The lines of code that a log names, where their files are at hand, and the branch that leads to them.

What a log shows of lines are stacks: of overdue calls (torch 2.7 and later, with a recorder), of exceptions. Compared
as the stacks of a live job are, they give the condition as well.
"""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.bounds import LISTED
from hangdoc.diagnosis.logs.known import Known
from hangdoc.diagnosis.logs.reading import Reading, user_frame
from hangdoc.model.diagnosis import CodeExcerpt, CodeLine, Diagnosis
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import JobSnapshot, SourceText
from hangdoc.model.wording import name_ranks


def excerpts(known: Known, reading: Reading) -> tuple[CodeExcerpt, ...]:
    """One line each of the ranks that the reading is about, with what they do there; () without their files."""
    notes: dict[SourceText, dict[int, tuple[str, bool]]] = {}
    sides: list[tuple[tuple[int, ...], str, Frame | None]]
    sides = [(side.ranks, side.op, side.frame) for side in reading.sides]
    if reading.meeting is not None and not sides:
        for rank, call in sorted(reading.meeting.waiting.items()):
            sides.append(((rank,), call.op, user_frame(call.stack)))
    by_place: dict[Frame, tuple[list[int], str]] = {}
    for ranks, op, frame in sides:
        if frame is not None:
            by_place.setdefault(frame, ([], op))[0].extend(ranks)
    for frame, (there, op) in by_place.items():
        text = _text(known.job, frame)
        if text is not None:
            note = (f"{name_ranks(sorted(there))}: {op}", set(there) <= set(reading.culprits))
            notes.setdefault(text, {})[frame.line] = note
    return tuple(_excerpt(text, lines) for text, lines in list(notes.items())[:LISTED])


def _text(job: JobSnapshot, frame: Frame) -> SourceText | None:
    found = [each for each in job.sources if each.file == frame.file and each.holds(frame.line)]
    return min(found, key=lambda each: len(each.text), default=None)


def _excerpt(text: SourceText, notes: dict[int, tuple[str, bool]]) -> CodeExcerpt:
    lines = text.lines()
    shown = tuple(CodeLine(n, lines[n], (said,), guilty=guilty) for n, (said, guilty) in sorted(notes.items()))
    return CodeExcerpt(text.file, text.function, shown)


def with_branch(told: Diagnosis, looked: Diagnosis) -> Diagnosis:
    """``told`` by the logs, with the condition that the comparison of their stacks finds (``looked``), if both name the
    same ranks."""
    branch = looked.divergence.branch if looked.divergence is not None else None
    if branch is None or not told.culprits or set(told.culprits) != set(looked.culprits):
        return told
    why = " ".join(filter(None, (looked.why, told.why)))
    return replace(told, divergence=looked.divergence, code=looked.code or told.code, why=why)
