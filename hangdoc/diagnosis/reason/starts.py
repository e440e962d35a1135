"""Where a slice begins: the lines at which the two sides left each other, where their threads are now, and what was to
be provided and was not.

Example: rank 2 called barrier at 61 while ranks 0 and 1 called all_reduce at 44 → (61 of side 0), (44 of side 1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from hangdoc.diagnosis.bounds import LISTED
from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.reason.provisions import providing, touching
from hangdoc.model.frames import own_frames
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.process import Frame, Stack, Thread

CULPRITS, OTHERS = 0, 1


class Kind(IntEnum):
    """What a start is; the lower, the more it says of where the sides left each other."""

    CALLED = 0
    """The call at which the histories of the sides diverge."""
    FORK = 1
    """The line that both sides were at, which called another function on each."""
    WITHIN = 2
    """A context that a call at which the histories diverge was made in."""
    TOUCHING = 3
    """A statement that names the same thing as the line of a wait."""
    MISSED = 4
    """A call of a kind that would have ended a wait."""
    NOW = 5
    """Where the main thread is."""
    THREAD = 6
    """Where another thread is; it may wait for work there all the time."""
    RAISED = 7
    """A `raise`, after which whatever was to follow did not."""
    OUTSIDE = 8
    """A function that a library calls, of a program that a library runs."""


GUESSED = (Kind.TOUCHING, Kind.MISSED, Kind.RAISED, Kind.OUTSIDE)
"""Places that are found by names or by what stands there, one of which may be where the sides parted."""


@dataclass(frozen=True, slots=True)
class Sides:
    """The ranks to compare: those that are to blame, and their peers."""

    culprits: tuple[int, ...]
    others: tuple[int, ...]

    def __getitem__(self, side: int) -> tuple[int, ...]:
        return self.others if side else self.culprits

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return iter((self.culprits, self.others))


@dataclass(frozen=True, slots=True)
class Start:
    """One place to slice from. ``ranks`` of that side were there; ``stack`` begins at the user's innermost line."""

    side: int
    ranks: tuple[int, ...]
    stack: Stack
    kind: Kind
    level: int = 0
    """How many of the user's calls lie between it and the function in which both sides were."""
    common: frozenset[tuple[str, str]] = frozenset()
    """(file, function) of the frames that both sides share: there what the stacks say is of one activation."""

    came: bool = True
    """Its ranks were there; else they were to be, and were not."""

    @property
    def lines(self) -> tuple[tuple[str, int], ...]:
        """(file, line), innermost first."""
        return tuple((frame.file, frame.line) for frame in self.stack)

    @property
    def way(self) -> tuple[tuple[str, str, int], ...]:
        """(file, function, line) of the user's frames, the innermost first."""
        return tuple((f.file, plain(f.function), f.line) for f in self.stack if not is_library(f))


Parted = tuple[int, Stack, bool]
"""(side, stack, whether it is the main thread's) of a call at which the sides diverged."""


def parted_at(gap: Gap | None, sides: Sides) -> list[Parted]:
    """(side, stack, whether it is the main thread's) of the two calls at which the sides diverged, if they did."""
    found: list[Parted] = []
    for token in (gap.mine, gap.theirs, gap.token) if gap is not None else ():
        side = next((side for side in (CULPRITS, OTHERS) if token is not None and token.rank in sides[side]), None)
        if token is not None and token.stack and side is not None:
            found.append((side, token.stack, token.thread == "MainThread"))  # the same call twice is one start
    return found


def starts_of(case: Case, program: Program, sides: Sides, parted: Sequence[Parted] = ()) -> list[Start]:
    """All starts, each place of a side once, as the most telling of its kinds."""
    found = [s for side, stack, _ in parted for s in _begun(side, sides[side], stack, Kind.CALLED)]
    for side in (CULPRITS, OTHERS):
        found += _now(case, side, sides[side])
    found = _levels(found)
    found += _contexts(program, found)
    waiting = [s.stack for s in _waits(case, sides)]
    missed = {Kind.TOUCHING: touching(program, waiting), Kind.MISSED: providing(program, waiting)}
    missed[Kind.RAISED] = [at for at in program.places.raising() if _may_have_run(case, sides.culprits, *at)]
    missed[Kind.OUTSIDE] = program.places.entered_from_outside()
    here = {at for s in found if s.side == CULPRITS and s.kind in (Kind.NOW, Kind.THREAD) for at in _led_by(program, s)}
    for kind, places in missed.items():
        for at in places:
            came = kind in (Kind.RAISED, Kind.OUTSIDE) or at in here
            found.append(Start(CULPRITS, sides.culprits, (Frame(*at, ""),), kind, came=came))
    seen: dict[tuple[int, tuple[tuple[str, int], ...]], Start] = {}
    for start in sorted(found, key=lambda each: each.kind):
        seen.setdefault((start.side, start.lines), start)
    return list(seen.values())


def _led_by(program: Program, start: Start) -> Iterator[tuple[str, int]]:
    """The line of the start, and those of the tests around it in its function."""
    file, line = start.lines[0]
    function, seen = program.function(file, line), {line}
    waiting = [line]
    while waiting:
        yield file, (at := waiting.pop())
        around = {each.line for each, _ in function.controls(at)} if function is not None else set()
        waiting += around - seen
        seen |= around


def _may_have_run(case: Case, ranks: Iterable[int], file: str, line: int) -> bool:
    """True if one of the ranks is known to have; of ranks without counters, anyone may."""
    counted = case.table.known(ranks)
    return not counted or bool(case.table.split(counted, file, line).ran)


def _now(case: Case, side: int, ranks: Iterable[int]) -> Iterator[Start]:
    """Where the side's threads are: of each different stack one, the most common ones first."""
    folded: dict[tuple[tuple[str, int], ...], tuple[Stack, dict[int, None], Kind]] = {}
    for rank in ranks:
        for stack, kind in _stacks(case, rank):
            key = tuple((f.file, f.line) for f in stack)
            folded.setdefault(key, (stack, {}, kind))[1][rank] = None
    most = sorted(folded.values(), key=lambda each: (each[2], -len(each[1])))[:LISTED]
    for stack, those, kind in most:
        yield from _begun(side, tuple(those), stack, kind)


def _stacks(case: Case, rank: int) -> Iterator[tuple[Stack, Kind]]:
    """The stacks of a rank: where its end came, for one that has ended."""
    snapshot, activity = case.ranks[rank], case.activities.get(rank)
    if snapshot.exit is not None and snapshot.exit.stack:
        yield snapshot.exit.stack, Kind.NOW
    if activity is not None and activity.stack:
        yield activity.stack, Kind.NOW
    last = snapshot.process.last if snapshot.process is not None else None
    threads: tuple[Thread, ...] = last.threads if last is not None else ()
    for number, thread in enumerate(threads):
        if thread.frames:
            yield thread.frames, Kind.THREAD if number else Kind.NOW


def _begun(side: int, ranks: tuple[int, ...], stack: Stack, kind: Kind) -> Iterator[Start]:
    """The start at the user's innermost line of the stack; nothing where no line is the user's."""
    own = own_frames(stack)
    first = next((at for at, frame in enumerate(own) if not is_library(frame)), None)
    if first is not None:
        yield Start(side, ranks, own[first:], kind)


def _levels(starts: Sequence[Start]) -> list[Start]:
    """The starts; those of a call or of now at each frame below the ones that both sides share, as what is nearer to
    these decides sooner."""
    found: list[Start] = []
    for start in starts:
        others = [s for s in starts if s.kind == start.kind and s.side != start.side]
        shared = max((_shared(start.stack, each.stack) for each in others), default=0)
        if start.kind not in (Kind.CALLED, Kind.NOW) or not shared > 0:
            found.append(start)
            continue
        outer = tuple(reversed(start.stack))
        forks = [tuple(reversed(o.stack)) for o in others if _shared(start.stack, o.stack) == shared < len(o.stack)]
        beside = shared < len(outer) and any(_in_one_function(each[shared], outer[shared]) for each in forks)
        common = frozenset((f.file, plain(f.function)) for f in outer[: shared + beside])
        if shared == len(outer):
            found.append(replace(start, common=common))
        if not beside and forks and shared < len(outer):  # one line, from which each called another function
            found += _begun(start.side, start.ranks, start.stack[len(outer) - shared :], Kind.FORK)
        level = 0
        for depth in range(shared, len(outer)):
            if not is_library(outer[depth]):
                stack = start.stack[len(outer) - 1 - depth :]
                found.append(replace(start, stack=stack, level=level, common=common))
                level += 1
    return found


def _shared(mine: Stack, theirs: Stack) -> int:
    """How many of the outermost frames are the same."""
    pairs = zip(reversed(mine), reversed(theirs), strict=False)
    places = [(a.file, a.line, plain(a.function)) == (b.file, b.line, plain(b.function)) for a, b in pairs]
    return next((number for number, same in enumerate(places) if not same), len(places))


def _contexts(program: Program, starts: Sequence[Start]) -> Iterator[Start]:
    """The `with` statements around the lines on the stacks: what they enter may change what is done inside."""
    for start in (each for each in starts if each.kind in (Kind.CALLED, Kind.NOW)):
        for at, frame in enumerate(start.stack):
            for line in () if is_library(frame) else program.places.contexts(frame.file, frame.line):
                outer = (Frame(frame.file, line, frame.function), *start.stack[at + 1 :])
                yield Start(start.side, start.ranks, outer, Kind.WITHIN)


def _in_one_function(a: Frame, b: Frame) -> bool:
    return a.file == b.file and plain(a.function) == plain(b.function)


def _waits(case: Case, sides: Sides) -> Iterator[Start]:
    """The threads that wait for something other than a collective, which all its members provide."""
    for side in (CULPRITS, OTHERS):
        apart = {r for r in sides[side] if (a := case.activities.get(r)) and a.kind != ActivityKind.IN_COLLECTIVE}
        for rank in sorted(apart)[:LISTED]:
            yield from (Start(side, (rank,), stack, kind) for stack, kind in _stacks(case, rank))
