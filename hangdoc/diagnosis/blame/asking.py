"""Whether a rank waits for a person, and whether a person can answer.

A prompt or a debugger at a real terminal waits for somebody to type: slow. One whose standard input is a pipe, as under
launchers and schedulers, waits for an answer that cannot come: a hang at once.
"""

from __future__ import annotations

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import below_user, plain
from hangdoc.diagnosis.frames.names import pattern
from hangdoc.diagnosis.state.process import blocking_thread, is_terminal, kind_mark
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.process import OpenFile


def waits_for_a_person(case: Case, rank: int) -> bool:
    """True if the rank reads from a terminal: a person may answer."""
    file = _read_by(case, rank)
    return file is not None and is_terminal(file)


def cannot_be_answered(case: Case, rank: int) -> bool:
    """True if the rank prompts on a standard input that is not a terminal: no answer can come."""
    file = _read_by(case, rank)
    return file is not None and file.fd == 0 and not is_terminal(file) and _asks(case, rank)


def standard_input(case: Case, rank: int) -> str:
    """What the rank's standard input is, in plain words: 'a pipe'."""
    file = _read_by(case, rank)
    kind = file.target.partition(":")[0] if file is not None else ""
    return {"pipe": "a pipe", "socket": "a socket"}.get(kind, file.target if file is not None else "")


def _read_by(case: Case, rank: int) -> OpenFile | None:
    """The file that the rank reads, if it is its standard input or a terminal."""
    if case.activities[rank].kind not in (ActivityKind.TERMINAL, ActivityKind.DEBUGGER):
        return None
    process = case.ranks[rank].process
    files = process.blocking_files if process is not None else ()
    return next((file for file in files if file.fd == 0 or is_terminal(file)), None)


def _asks(case: Case, rank: int) -> bool:
    process, where = case.ranks[rank].process, case.activities[rank].where
    thread = blocking_thread(process) if process is not None else None
    mark = kind_mark(thread.frames) if thread is not None else None
    if mark is not None and mark.kind in (ActivityKind.TERMINAL, ActivityKind.DEBUGGER):
        return True
    if thread is not None and any(
        pattern("prompting_function").search(plain(frame.function)) for frame in below_user(thread.frames)
    ):
        return True
    line = case.sources.line(where.file, where.line) if where is not None else None
    return line is not None and pattern("prompt_call").search(line) is not None
