"""Where a slice begins: the lines at which the two sides left each other, and where their threads are now.

Example: rank 2 called barrier at 61 while ranks 0 and 1 called all_reduce at 44 → (61 of side 0), (44 of side 1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.model.frames import own_frames
from hangdoc.model.process import Stack, Thread

CULPRITS, OTHERS = 0, 1
MOST_STACKS = 4
"""Different stacks of one side that are sliced; the ranks of a side are there because they did the same."""


@dataclass(frozen=True, slots=True)
class Sides:
    """The ranks to compare: those that are to blame, and their peers."""

    culprits: tuple[int, ...]
    others: tuple[int, ...]

    def __getitem__(self, side: int) -> tuple[int, ...]:
        return self.others if side else self.culprits


@dataclass(frozen=True, slots=True)
class Start:
    """One place to slice from. ``ranks`` of that side were there; ``stack`` begins at the user's innermost line."""

    side: int
    ranks: tuple[int, ...]
    stack: Stack
    main: bool = True
    """It is what the main thread did, or is at: other threads may wait for work there all the time."""
    called: bool = False
    """From the history of calls: here the sides did not do the same."""

    @property
    def lines(self) -> tuple[tuple[str, int], ...]:
        """(file, line), innermost first."""
        return tuple((frame.file, frame.line) for frame in self.stack)

    @property
    def way(self) -> tuple[tuple[str, str, int], ...]:
        """(file, function, line) of the user's frames, the innermost first."""
        return tuple((f.file, plain(f.function), f.line) for f in self.stack if not is_library(f))


def starts_of(case: Case, sides: Sides, parted: Iterable[tuple[int, Stack, bool]] = ()) -> list[Start]:
    """Where the sides left each other, (side, stack, whether it is the main thread's), then what their threads are
    at. Each place of a side once."""
    found = [s for side, stack, main in parted for s in _begun(side, sides[side], stack, main=main, called=True)]
    for side in (CULPRITS, OTHERS):
        found += _now(case, side, sides[side])
    seen: dict[tuple[int, tuple[tuple[str, int], ...]], Start] = {}
    for start in found:
        seen.setdefault((start.side, start.lines), start)
    return list(seen.values())


def _now(case: Case, side: int, ranks: Iterable[int]) -> Iterator[Start]:
    """Where the side's threads are: of each different stack one, the most common ones first."""
    folded: dict[tuple[tuple[str, int], ...], tuple[Stack, list[int], bool]] = {}
    for rank in ranks:
        for stack, main in _stacks(case, rank):
            key = tuple((f.file, f.line) for f in stack)
            folded.setdefault(key, (stack, [], main))[1].append(rank)
    most = sorted(folded.values(), key=lambda each: (not each[2], -len(each[1])))[:MOST_STACKS]
    for stack, those, main in most:
        yield from _begun(side, tuple(those), stack, main=main)


def _stacks(case: Case, rank: int) -> Iterator[tuple[Stack, bool]]:
    """(stack, whether it is the main thread's) of a rank: where its end came, for one that has ended."""
    snapshot, activity = case.ranks[rank], case.activities.get(rank)
    if snapshot.exit is not None and snapshot.exit.stack:
        yield snapshot.exit.stack, True
    if activity is not None and activity.stack:
        yield activity.stack, True
    last = snapshot.process.last if snapshot.process is not None else None
    threads: tuple[Thread, ...] = last.threads if last is not None else ()
    for number, thread in enumerate(threads):
        if thread.frames:
            yield thread.frames, number == 0


def _begun(side: int, ranks: tuple[int, ...], stack: Stack, *, main: bool, called: bool = False) -> Iterator[Start]:
    """The start at the user's innermost line of the stack; nothing where no line is the user's."""
    own = own_frames(stack)
    first = next((at for at, frame in enumerate(own) if not is_library(frame)), None)
    if first is not None:
        yield Start(side, ranks, own[first:], main, called)
