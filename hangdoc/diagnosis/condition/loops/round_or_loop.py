"""Did a side leave the loop, or did a condition in one of its rounds skip the call?"""

from __future__ import annotations

from collections.abc import Sequence

from hangdoc.diagnosis.calls.alignment import Alignment
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.source.guards import way_out_guards
from hangdoc.diagnosis.source.queries import raises
from hangdoc.diagnosis.source.sources import Sources

_SKIPS = ("if", "return", "try", "expression", "decorator")
"""Kinds of guards that can skip a call without ending the loop around it."""


def others_in(alignment: Alignment) -> tuple[int, ...]:
    """The members of its group that the repair does not change."""
    culprits = frozenset(alignment.culprits)
    return tuple(r for r in alignment.history.members if r not in culprits)


def skipped_round(sources: Sources, points: Sequence[BranchPoint]) -> BranchPoint | None:
    """The likeliest condition on the way to the call inside the loop ``points[0]``; None where there is none.

    One round without the call looks just like one round less. A condition that leaves the loop skips no round.
    """
    return next(iter(skips_of(sources, points)), None)


def skips_of(sources: Sources, points: Sequence[BranchPoint]) -> list[BranchPoint]:
    """All of them, the likeliest first."""
    loop = points[0]
    first, last = loop.guard.span
    tree = sources.function(loop.file, loop.guard.line)
    out = {guard.place for guard in way_out_guards(tree, loop.guard.line)} if tree is not None else set()
    inside = (p for p in points if p.guarded == loop.guarded and p.guard.kind in _SKIPS)
    inside = (p for p in inside if (p.file, p.function) != (loop.file, loop.function) or p.guard.place not in out)
    inside = (p for p in inside if not p.of_library and not _ends_iterator(sources, loop, p))
    return [p for p in inside if p.level > loop.level or (p.level == loop.level and first < p.guard.line <= last)]


def _ends_iterator(sources: Sources, loop: BranchPoint, point: BranchPoint) -> bool:
    """True if the condition raises StopIteration, or the like, while the loop asks its iterator for an item."""
    tree = sources.function(point.file, point.guard.line) if loop.guard.in_header else None
    return tree is not None and raises(tree, point.guard.line)
