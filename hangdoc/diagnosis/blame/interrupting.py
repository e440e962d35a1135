"""Calls of code that interrupts the program: a finalizer, a signal handler, a callback."""

from __future__ import annotations

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.model.process import Frame, Stack


def interrupting(case: Case, stack: Stack) -> Frame | None:
    """The frame of a finalizer, signal handler or callback, which the interpreter runs at any moment; else None."""
    return next((f for f in stack if _interrupts(case, f.file, plain(f.function))), None)


def _interrupts(case: Case, file: str, function: str) -> bool:
    return function in names("runs_at_any_moment") or bool(case.sources.registered_with(file, function))


def was_interrupted(case: Case, gap: Gap | None) -> bool:
    """True if the culprits' call comes from code that interrupts a program, and the others' does not."""
    if gap is None or gap.mine is None or interrupting(case, gap.mine.stack) is None:
        return False
    return gap.theirs is None or interrupting(case, gap.theirs.stack) is None
