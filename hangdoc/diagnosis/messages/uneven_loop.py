"""A loop that passes messages, and whose number of rounds differs between ranks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from hangdoc.diagnosis.condition.stack_comparison import callees_of, guards_of, own_function
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import Guard
from hangdoc.model.process import Frame

_RECENT = 64
"""Messages of each rank that are looked at, the latest; chosen by hand."""


@dataclass(frozen=True, slots=True)
class UnevenLoop:
    """``name``: what the loop counts to; ``values``: rank → its value; ``odd``: (the one rank that differs,), or ().

    Example: `for _ in range(micro_batches)` with 4, 4 and 3 on ranks 0 to 2 → odd (2,).
    """

    at: Frame
    guard: Guard
    name: str
    values: dict[int, str]
    odd: tuple[int, ...]


def uneven_loop(case: Case, ranks: tuple[int, ...]) -> UnevenLoop | None:
    """The loop around the ranks' last messages whose bound is a number that differs between ranks.

    All ``ranks`` must show the number, so all must be in the loop's function now. Example: all are in
    `for _ in range(chunks)`, and `chunks` is 4 on ranks 0 and 1, 3 on rank 2 → that loop, odd (2,).
    """
    seen: set[tuple[str, int]] = set()
    for rank in ranks:
        journal = case.ranks[rank].journal
        for message in reversed(journal.point_to_points[-_RECENT:] if journal is not None else ()):
            stack = journal.stack(message.stack) if journal is not None else ()
            callees = callees_of(stack)
            for frame in user_stack(stack):
                if (frame.file, frame.line) in seen:
                    continue
                seen.add((frame.file, frame.line))
                loops = [g for g in guards_of(case.sources, frame, callees) if g.kind == "loop"]
                found = _uneven(case, own_function(stack, frame), loops, ranks)
                if found is not None:
                    return found
    return None


def _uneven(case: Case, frame: Frame, loops: list[Guard], ranks: tuple[int, ...]) -> UnevenLoop | None:
    for guard in loops:
        for name in guard.names:
            values = case.values.of(frame.file, frame.function, name)
            if not set(ranks) <= values.keys() or not all(v.isdecimal() for v in values.values()):
                continue
            often = Counter(values.values())
            if len(often) < 2:
                continue
            rare = [value for value, count in often.items() if count == 1]
            odd = tuple(r for r, v in values.items() if v in rare) if len(rare) == 1 and len(values) > 2 else ()
            return UnevenLoop(replace(frame, line=guard.line), guard, name, values, odd)
    return None
