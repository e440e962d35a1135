"""A loop that passes messages, and whose number of rounds differs between ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from hangdoc.diagnosis.bounds import COMPARED, DEEPEST
from hangdoc.diagnosis.condition.elsewhere.as_called import given_by_caller
from hangdoc.diagnosis.condition.stack_comparison import callees_of, guards_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import Guard
from hangdoc.diagnosis.source.values import equals_rank
from hangdoc.model.kinds import MESSAGES
from hangdoc.model.process import Frame, Stack


@dataclass(frozen=True, slots=True)
class UnevenLoop:
    """``name``: what the loop counts to; ``values``: rank → its value; ``odd``: (the one rank that differs,), or ().

    Example: `for _ in range(micro_batches)` with 4, 4 and 3 on ranks 0 to 2 → odd (2,).
    """

    at: Frame
    guard: Guard | None
    """None: the loop is a library's, as a pipeline's schedule, and ``name`` is what the program gave it, '' where that
    was not seen."""
    name: str
    values: dict[int, str]
    odd: tuple[int, ...]
    given: tuple[Frame, str] | None = None
    """(caller, its name for that number), where the loop's function is given it."""


def uneven_loop(case: Case, ranks: tuple[int, ...]) -> UnevenLoop | None:
    """The loop around the ranks' last messages whose bound is a number that differs between ranks.

    All ``ranks`` must show the number, so all must be in the loop's function now, or in one that gives it the number.
    Examples: all are in `for _ in range(chunks)`, and `chunks` is 4 on ranks 0 and 1, 3 on rank 2 → that loop, odd
    (2,); all are in step(), which calls forward(n) and then backward(kept), and `n` is 4 on rank 2 alone → the
    `for _ in range(n)` of forward(), odd (2,).
    """
    seen: set[tuple[str, int]] = set()
    given: UnevenLoop | None = None
    for rank in ranks:
        for stack in _stacks_of_messages(case, rank):
            callees = callees_of(stack)
            way = user_stack(stack)
            for level, frame in enumerate(way):
                if (frame.file, frame.line) in seen:
                    continue
                seen.add((frame.file, frame.line))
                loops = [g for g in guards_of(case.sources, frame, callees) if g.kind == "loop"]
                given = given or _given_unevenly(case, way[level:], loops, ranks)
    return given


def _stacks_of_messages(case: Case, rank: int) -> Iterator[Stack]:
    """Those of the rank's latest messages, the newest first; where its journal has no call, of what it waits in."""
    journal, now = case.ranks[rank].journal, case.activities[rank]
    if journal is None or not (journal.calls or journal.point_to_points):
        yield from [now.stack] if now.kind in MESSAGES else []
        return
    for message in reversed(journal.point_to_points[-COMPARED:]):
        yield journal.stack(message.stack)


def _given_unevenly(case: Case, way: Stack, loops: list[Guard], ranks: tuple[int, ...]) -> UnevenLoop | None:
    """The loop of the innermost frame whose bound its callers have given it, and one rank alone another than all others
    that are in such a caller."""
    for guard in loops:
        for name in guard.names:
            bound = name
            for frame, caller in pairwise(way[:DEEPEST]):
                bound = given_by_caller(case.sources, frame, caller, bound)
                values = _numbers(case, caller, bound, ranks) if bound else None
                if not bound or (values is not None and not _odd_one(values)):
                    break
                if values is not None:
                    at = replace(way[0], line=guard.line)
                    return UnevenLoop(at, guard, name, values, _odd_one(values), (caller, bound))
    return None


def _numbers(case: Case, frame: Frame, name: str, ranks: tuple[int, ...]) -> dict[int, str] | None:
    """Rank → the name's value there, where all of the ranks show numbers that are not the same."""
    values = case.values.of(frame.file, frame.function, name)
    if not set(ranks) <= values.keys() or not all(v.isdecimal() for v in values.values()):
        return None
    return values if len(set(values.values())) > 1 and not equals_rank(values) else None


def _odd_one(values: dict[int, str]) -> tuple[int, ...]:
    """(The one rank whose value no other has,); () where several have such a value, or of two ranks."""
    rare = [value for value, count in Counter(values.values()).items() if count == 1]
    return tuple(r for r, v in values.items() if v in rare) if len(rare) == 1 and len(values) > 2 else ()
