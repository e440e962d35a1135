"""Which kind of thing a thread waits for: the reader of ``resources.toml``.

Example: a thread in `self.jobs.get()`, below it queue.py's get() → the row 'item', of the object 'jobs', which the
calls `jobs.put` and `jobs.put_nowait` of the program provide.
"""

from __future__ import annotations

import re
from collections.abc import Collection
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

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Resource:
    """One row."""

    name: str
    need: NeedKind
    activity: frozenset[ActivityKind]
    below: frozenset[tuple[str, str]]
    """(end of a file, function)."""
    waits: frozenset[str]
    caught: frozenset[str]
    """Exceptions, after one of which it tries again."""
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
    lines: tuple[Place, ...]
    """The user's innermost line, and those of the tests that keep the thread there."""
    own: bool
    """What it waits for is one of its own process: an object that threads share, a child, a pool."""

    @property
    def line(self) -> Place:
        """The user's innermost line."""
        return self.lines[0]


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
            frozenset(row.get("caught", ())),
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
    tests = [each for each, _ in _tests(program, at)]
    places = tuple(dict.fromkeys([(at.file, at.line), *((each.file, each.line) for each in tests)]))
    calls = {name: None for file, line in places for name in program.places.calls_at(file, line)}
    caught = {word for each in tests if each.kind == "except" for word in _WORD.findall(each.subject)}
    for row in resources():
        if activity not in row.activity:
            continue
        by_library = any(row.shows_below(frame) for frame in below) or not row.caught.isdisjoint(caught)
        by_call = not row.waits.isdisjoint(calls) or any(plain(frame.function) in row.waits for frame in below)
        if by_library or (by_call and not (below and row.below) and (not row.gone or _while_there(program, at, row))):
            own = any(frame.file.endswith(end) for frame in below for end in _own())
            objects = _objects(program, places, row.waits) or _objects(program, places)
            return Seen(row, () if row.caught else objects, places, own)
    return None


def _objects(program: Program, places: Collection[Place], methods: Collection[str] = ()) -> tuple[str, ...]:
    found = (name for place in places for name in program.places.called_objects_at(*place, methods))
    modules = {name for file, _ in places for name in program.places.modules(file)}
    return tuple(name for name in dict.fromkeys(found) if name not in modules)


def polls(program: Program, stack: Stack) -> bool:
    """True if a test keeps the thread at its line: it asks again and again."""
    at = next((frame for frame in stack if not is_library(frame)), None)
    return at is not None and any(each.kind == "while" for each, _ in _tests(program, at))


def providing(program: Program, seen: Seen) -> tuple[Place, ...]:
    """The statements of the program that may provide it: those that name the same object, else all such calls but the
    lines of the wait itself."""
    return naming_it(program, seen) or tuple(_calls(program, seen))


def naming_it(program: Program, seen: Seen) -> tuple[Place, ...]:
    """The statements that call something which provides it, and name the same object."""
    named = {place for word in seen.objects for place in program.places.naming(word)}
    return tuple(place for place in _calls(program, seen) if place in named)


def _calls(program: Program, seen: Seen) -> list[Place]:
    return [place for place in program.places.calling(seen.resource.provides) if place not in seen.lines]


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
