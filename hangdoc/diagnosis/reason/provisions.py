"""What a wait is for, and where the program would have provided it.

Example: rank 3 polls `queue.get(timeout=1)`: the places that call `put` are where somebody was to come to.
"""

from __future__ import annotations

from collections.abc import Iterable

from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.program.program import Program
from hangdoc.model.process import Frame, Stack
from hangdoc.model.tables import table


def providing(program: Program, waits: Iterable[Stack]) -> list[tuple[str, int]]:
    """(file, line) of the user's calls that may provide what these stacks wait for, in the order of the table."""
    wanted = {name for stack in waits for name in _waiting_calls(program, stack)}
    rows = table(__package__, "provisions").values()
    names = dict.fromkeys(name for row in rows if wanted.intersection(row["waits"]) for name in row["provides"])
    return [place for place in program.places_of_calls(names) if not is_library_file(place[0])]


def is_library_file(file: str) -> bool:
    """True if the file is no part of the user's program."""
    return is_library(Frame(file, 0, ""))


def _waiting_calls(program: Program, stack: Stack) -> list[str]:
    """The names of the calls that a thread may wait in: those of the user's line, of the tests that keep it there, and
    of the library's functions below."""
    first = next((at for at, frame in enumerate(stack) if not is_library(frame)), None)
    if first is None:
        return []
    at = stack[first]
    found = [plain(frame.function) for frame in stack[:first]]
    found += program.calls_at(at.file, at.line)
    function = program.function(at.file, at.line)
    for predicate, _ in function.controls(at.line) if function is not None else ():
        found += program.calls_at(predicate.file, predicate.line)
    return found
