"""Which kind of thing a thread waits for: the reader of ``resources.toml``.

Example: a thread in `self.jobs.get()`, below it queue.py's get() → the row 'item', of the object 'jobs', which the
calls `jobs.put` and `jobs.put_nowait` of the program provide.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import takewhile

from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.needs.need import NeedKind
from hangdoc.diagnosis.program.items import Predicate
from hangdoc.diagnosis.program.places import Place
from hangdoc.diagnosis.program.program import Program
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.process import Frame, Stack
from hangdoc.model.tables import table


@dataclass(frozen=True, slots=True)
class Resource:
    """One row."""

    name: str
    need: NeedKind
    activity: frozenset[ActivityKind]
    below: frozenset[tuple[str, str]]
    """(end of a file, function)."""
    waits: frozenset[str]
    gone: bool
    of_stream: bool
    """It comes through a socket or a pipe, whose other end tells whose it is."""
    provides: tuple[str, ...]

    def shows_below(self, frame: Frame) -> bool:
        """True if the library's frame is one of its waits."""
        return any(frame.file.endswith(end) and _ends(frame.function, name) for end, name in self.below)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the line of a wait shows."""

    resource: Resource
    objects: tuple[str, ...]
    """The last names of what the waiting call is made on: 'jobs' of `self.jobs.get()`."""
    line: Place
    """The user's innermost line."""
    own: bool
    """What it waits for is one of its own process: an object that threads share, a child, a pool."""


@cache
def resources() -> tuple[Resource, ...]:
    """All rows, in their order."""
    return tuple(
        Resource(
            name,
            NeedKind(row["need"]),
            frozenset(map(ActivityKind, row["activity"])),
            frozenset((file, function) for file, _, function in (each.partition(":") for each in row.get("below", ()))),
            frozenset(row["waits"]),
            row.get("gone", False),
            row.get("stream", False),
            tuple(row["provides"]),
        )
        for name, row in table(__package__, "resources").items()
        if "need" in row
    )


@cache
def _own() -> tuple[str, ...]:
    return tuple(table(__package__, "resources")["own"]["files"])


def seen_on(program: Program, stack: Stack, activity: ActivityKind) -> Seen | None:
    """What the thread with this stack, which does this, waits for; None where no row fits."""
    at = next((frame for frame in stack if not is_library(frame)), None)
    if at is None:
        return None
    below = list(takewhile(is_library, stack))
    places = [(at.file, at.line), *((each.file, each.line) for each, _ in _tests(program, at))]
    calls = {name: None for file, line in places for name in program.places.calls_at(file, line)}
    objects = dict.fromkeys(name for place in places for name in program.places.called_objects_at(*place))
    for row in resources():
        if activity not in row.activity:
            continue
        by_library = any(row.shows_below(frame) for frame in below)
        by_call = not row.waits.isdisjoint(calls) or any(plain(frame.function) in row.waits for frame in below)
        if by_library or (by_call and not (below and row.below) and (not row.gone or _while_there(program, at, row))):
            own = any(frame.file.endswith(end) for frame in below for end in _own())
            return Seen(row, tuple(objects), places[0], own)
    return None


def polls(program: Program, stack: Stack) -> bool:
    """True if a test keeps the thread at its line: it asks again and again."""
    at = next((frame for frame in stack if not is_library(frame)), None)
    return at is not None and any(each.kind == "while" for each, _ in _tests(program, at))


def providing(program: Program, seen: Seen) -> tuple[Place, ...]:
    """The statements of the program that may provide it: those that name the same object, else all such calls but the
    line of the wait itself."""
    calling = [place for place in program.places.calling(seen.resource.provides) if place != seen.line]
    named = {place for word in seen.objects for place in program.places.naming(word)}
    return tuple(place for place in calling if place in named) or tuple(calling)


def _tests(program: Program, at: Frame) -> list[tuple[Predicate, str]]:
    """The tests that keep a thread at its line, with their outcomes."""
    function = program.function(at.file, at.line)
    return [(each, out) for each, out in function.controls(at.line) if each.kind != "for"] if function else []


def _while_there(program: Program, at: Frame, row: Resource) -> bool:
    """True if the thread stays as long as the call of the row is true."""
    for test, outcome in _tests(program, at):
        asked = not row.waits.isdisjoint(program.places.calls_at(test.file, test.line))
        if asked and (outcome == "True") != test.is_negated:
            return True
    return False


def _ends(function: str, name: str) -> bool:
    return function == name or function.endswith(f".{name}") or plain(function) == name
