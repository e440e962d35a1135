"""What a wait is for, and where the program would have provided it.

Example: rank 3 polls `queue.get(timeout=1)`: the places that call `put` are where somebody was to come to.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.program.places import Place
from hangdoc.diagnosis.program.program import Program
from hangdoc.model.process import Frame, Stack
from hangdoc.model.tables import table


def touching(program: Program, waits: Iterable[Stack]) -> list[Place]:
    """The statements that name the same thing as the line of a wait: of `self.due.wait()` those with a `due`."""
    words: dict[str, None] = {}
    for stack in waits:
        for file, line in _lines_of(program, stack):
            words.update(dict.fromkeys(program.places.called_objects_at(file, line)))
    return list(dict.fromkeys(place for word in words for place in program.places.naming(word)))


def providing(program: Program, waits: Iterable[Stack]) -> list[Place]:
    """The user's calls that may provide what these stacks wait for, in the order of the table."""
    wanted = {name for stack in waits for name in _waiting_calls(program, stack)}
    rows = table(__package__, "provisions").values()
    names = dict.fromkeys(name for row in rows if wanted.intersection(row["waits"]) for name in row["provides"])
    return program.places.calling(names)


def is_library_file(file: str) -> bool:
    """True if the file is no part of the user's program."""
    return is_library(Frame(file, 0, ""))


def _waiting_calls(program: Program, stack: Stack) -> list[str]:
    """The names of the calls that a thread may wait in: those of the user's line, of the tests that keep it there, and
    of the library's functions below."""
    below = [plain(frame.function) for frame in takewhile(is_library, stack)]
    return below + [name for file, line in _lines_of(program, stack) for name in program.places.calls_at(file, line)]


def _lines_of(program: Program, stack: Stack) -> list[Place]:
    """The user's innermost line of a wait, and the tests that keep it there."""
    at = next((frame for frame in stack if not is_library(frame)), None)
    function = program.function(at.file, at.line) if at is not None else None
    if at is None or function is None:
        return []
    return [(at.file, at.line), *((p.file, p.line) for p, _ in function.controls(at.line) if p.kind != "for")]
