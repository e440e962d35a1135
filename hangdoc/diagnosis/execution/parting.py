"""The decision at which two ranks parted, as their recorded decisions and calls show it.

Both are laid side by side. The first call that one made and the other went past is where they parted; of the decisions
that this call depends on, by the code around it, the last that came out otherwise on the other rank is the reason.

Example: after all_reduce #12, rank 0 decided `if loss < best` True, `if verbose` True, and is in the barrier under the
first; rank 1 decided False, False, and is in all_reduce #13 → `if loss < best`, and not `if verbose`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hangdoc.diagnosis.execution.alignment import Column
from hangdoc.diagnosis.execution.decisions import Key, condition_key
from hangdoc.diagnosis.execution.tested import FALSE, ROUND
from hangdoc.diagnosis.execution.traces import Act
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.source.guards import (
    Guard,
    guards,
    guards_in_expression,
    handlers_of,
    jumps_further_in,
    way_out_guards,
)
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame, Stack

_WITHIN_A_STATEMENT = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


@dataclass(frozen=True, slots=True)
class Pair:
    """Two ranks' acts beside each other, since ``start``: the last collective before that both joined, None: the start
    of the program."""

    start: Act | None
    sides: tuple[Sequence[Act], Sequence[Act]]
    columns: tuple[Column, ...]
    ranks: tuple[int, int] = (-1, -1)

    def act(self, side: int, column: int) -> Act | None:
        """What a side has in a column."""
        at = self.columns[column][side]
        return None if at is None else self.sides[side][at]

    def is_alike(self, column: int) -> bool:
        """True if both did the same there: decided alike, or called the same, of groups that both are in of one."""
        mine, theirs = self.act(0, column), self.act(1, column)
        if mine is None or theirs is None or mine.step != theirs.step:
            return False
        apart = mine.group[0] != theirs.group[0] and {*self.ranks} <= {*mine.group[1]} & {*theirs.group[1]}
        return not apart

    def value(self, side: int, column: int) -> str:
        """How a side decided there; '' where it did not. What is caught on the other side alone was not raised here."""
        act, other = self.act(side, column), self.act(1 - side, column)
        if act is None and other is not None and other.decided is not None and other.decided.catches:
            return FALSE
        return act.step.value if act is not None and act.decided is not None else ""

    def decided(self, begin: int = 0) -> Iterator[int]:
        """The columns of decisions, from ``begin`` on."""
        for number in range(begin, len(self.columns)):
            if any(act is not None and act.decided for act in (self.act(0, number), self.act(1, number))):
                yield number

    def asked(self, key: Key) -> Iterator[int]:
        """The columns of one decision."""
        for number in self.decided():
            acts = (self.act(0, number), self.act(1, number))
            if any(act is not None and act.decided is not None and act.decided.key == key for act in acts):
                yield number

    def call_before(self, column: int) -> int:
        """The column of the last call before that both made; -1: none since the start."""
        found = (n for n in range(column - 1, -1, -1) if self.is_alike(n) and getattr(self.act(0, n), "call", None))
        return next(found, -1)


@dataclass(frozen=True, slots=True)
class Seen:
    """``side`` (0 or 1) came to a call under ``guard``, the other one decided otherwise.

    ``frame``: the line under the guard, in the function that is number ``level`` of the user's on the way to the call.
    """

    guard: Guard
    frame: Frame
    level: int
    side: int


@dataclass(frozen=True, slots=True)
class Parting(Seen):
    """They did so in that ``column``."""

    column: int
    call: int
    """The column of the call."""
    stack: Stack = ()
    """That of the call."""


def parting(sources: Sources, pair: Pair) -> Parting | None:
    """Where the two parted; None where no decision that was recorded explains it."""
    found: list[Parting] = []
    for side, call, since in _alone(pair):
        act = pair.act(side, call)
        asked_of = dict(depends(sources, act.stack)) if act is not None else {}
        parted = [
            (n, at) for n in range(call - 1, since, -1) if (at := _otherwise(pair, side, n, asked_of)) is not None
        ]
        parted = [each for each in parted if not _is_a_part(pair, each[0])]
        parted = [each for each in parted if _in_one_round(pair, since, *each, asked_of)]
        if not parted:
            continue
        # What led to an exception, if that is seen, comes before the handler.
        first = next((each for each in parted if not _is_caught(pair, each[0])), parted[-1])
        # What came out otherwise within a loop has ended it.
        inner = [each for each in parted if each[0] < first[0] and _is_within(each[1], first[1])]
        column, asked = (inner or [first])[-1]
        stack = act.stack if act is not None else ()
        found.append(Parting(asked.guard, asked.frame, asked.level, side, column, call, stack))
    return max(found, key=lambda each: each.column, default=None)


def _otherwise(pair: Pair, side: int, column: int, asked_of: Mapping[Key, Asked]) -> Asked | None:
    """What the side decided there so that it comes to its call, and the other one otherwise; None where it did not."""
    mine, theirs = pair.value(side, column), pair.value(1 - side, column)
    act = pair.act(side, column) or pair.act(1 - side, column)
    if not mine or not theirs or mine == theirs or act is None or act.decided is None:
        return None
    asked = asked_of.get(act.decided.key)
    if asked is None:
        return None
    return asked if mine in (FALSE if asked.guard.is_tried else str(asked.guard.taken), ROUND) else None


def _is_caught(pair: Pair, column: int) -> bool:
    acts = (pair.act(0, column), pair.act(1, column))
    return any(act is not None and act.decided is not None and act.decided.catches for act in acts)


def _is_within(asked: Asked, loop: Asked) -> bool:
    if loop.guard.kind != "loop" or asked.guard.kind == "loop":
        return False
    return asked.frame.file == loop.frame.file and loop.guard.holds(asked.guard.line)


def _in_one_round(pair: Pair, since: int, column: int, asked: Asked, asked_of: Mapping[Key, Asked]) -> bool:
    """False if a loop around that decision has been decided otherwise since the last call that both made: what is
    decided in there is then of two rounds.

    Example: rank 1 is in a fourth round of `for each in metrics:`; rank 0 has left it after three, and begun it anew.
    """
    around = (key for key, each in asked_of.items() if each.guard.kind == "loop" and _is_around(each, asked))
    return all(pair.is_alike(number) for key in around for number in pair.asked(key) if since < number < column)


def _is_around(loop: Asked, asked: Asked) -> bool:
    within = loop.level == asked.level and loop.guard.holds(asked.guard.line) and loop.guard != asked.guard
    return within or loop.level < asked.level


def _is_a_part(pair: Pair, column: int) -> bool:
    """True if the two decide that in the same two ways again and again: each has its part to play."""
    acts = [(pair.act(0, n), pair.act(1, n)) for n in range(len(pair.columns))]
    steps = [(a and a.step, b and b.step) for a, b in acts]
    return steps.count(steps[column]) > 1


def _alone(pair: Pair) -> list[tuple[int, int, int]]:
    """(side, column, column of the last call before that both made) of the first call of each side that the other one
    went past; both of one stretch between calls that both made."""
    found: dict[int, tuple[int, int, int]] = {}
    last = [max((n for n, column in enumerate(pair.columns) if column[s] is not None), default=-1) for s in (0, 1)]
    both = since = -1
    for number in range(len(pair.columns)):
        acts = [pair.act(side, number) for side in (0, 1)]
        both = number if None not in acts else both
        if all(act is None or act.decided is not None for act in acts):
            continue
        if pair.is_alike(number):
            if found:
                break
            since = number
            continue
        for side, act in enumerate(acts):
            # Who has done nothing else since has not come that far yet.
            if act is not None and side not in found and last[1 - side] > both:
                found[side] = side, number, since
    return list(found.values())


class Asked(NamedTuple):
    """A condition or loop on the way to a call: the line under it, in which of the functions on that way."""

    guard: Guard
    frame: Frame
    level: int


def depends(sources: Sources, stack: Stack) -> Iterator[tuple[Key, Asked]]:
    """The conditions and loops that decide whether the call with that stack is made: around its lines, before them in
    their functions, and those that lead out of the loops around them."""
    called: set[str] = set()
    frames: list[tuple[Frame, frozenset[str]]] = []
    for frame in stack:
        if not is_library(frame) or sources.function(frame.file, frame.line) is not None:
            frames.append((frame, frozenset(called)))
            called.clear()
        called.add(plain(frame.function))
    for level, (frame, names) in enumerate(reversed(frames)):
        tree = sources.function(frame.file, frame.line)
        if tree is None:
            continue
        if plain(frame.function) in _WITHIN_A_STATEMENT:
            found = guards_in_expression(tree, frame.line, names)
        else:
            found = guards(tree, frame.line, names, iterating=True)
            loops = [each for each in found if each.kind == "loop"]
            inner = loops[-1].span if loops else None
            out = [guard for loop in loops for guard in way_out_guards(tree, loop.line)]
            found = [*out, *jumps_further_in(tree, frame.line, inner), *found]
        for guard in found:
            heads = handlers_of(tree, guard) if guard.is_tried else [guard.place]
            yield from ((condition_key(frame.file, *head), Asked(guard, frame, level)) for head in heads)
