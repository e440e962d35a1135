"""Did a side leave the loop, or did a condition in one of its rounds skip the call?"""

from __future__ import annotations

from collections.abc import Sequence

from hangdoc.diagnosis.calls.alignment import Alignment, Gap
from hangdoc.diagnosis.calls.history import distinct
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.loops.ended_by_exception import fell_out
from hangdoc.diagnosis.condition.loops.executions import is_inside
from hangdoc.diagnosis.condition.loops.iterators import makes_items_alike
from hangdoc.diagnosis.condition.loops.loop_counts import (
    began_same_round,
    goes_round_alike,
    is_in_last_round,
    is_over_parts,
)
from hangdoc.diagnosis.condition.loops.planned_rounds import plans_rounds_alike
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.source.equal_counts import container_of, is_over_fixed
from hangdoc.diagnosis.source.guards import way_out_guards
from hangdoc.diagnosis.source.loops import ways_out
from hangdoc.diagnosis.source.queries import raises
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.values import SideRanks

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
    inside = (p for p in inside if not _is_alike_in_each_round(loop, p))
    inside = (p for p in inside if (p.file, p.function) != (loop.file, loop.function) or p.guard.place not in out)
    inside = (p for p in inside if not p.of_library and not _ends_iterator(sources, loop, p))
    return [p for p in inside if p.level > loop.level or (p.level == loop.level and first < p.guard.line <= last)]


def _ends_iterator(sources: Sources, loop: BranchPoint, point: BranchPoint) -> bool:
    """True if the condition raises StopIteration, or the like, while the loop asks its iterator for an item."""
    tree = sources.function(point.file, point.guard.line) if loop.guard.in_header else None
    return tree is not None and raises(tree, point.guard.line)


def _is_alike_in_each_round(loop: BranchPoint, condition: BranchPoint) -> bool:
    """True if only what counts the loop's rounds, and constants, decide it. Example: `if layer + 1 < LAYERS`."""
    names = condition.guard.names if condition.file == loop.file and condition.function == loop.function else ()
    counts = loop.guard.rounds
    return not set(names).isdisjoint(counts) and all(name in counts or name.isupper() for name in names)


def skipped_round_first(case: Case, alignment: Alignment, gap: Gap, possible: list[BranchPoint]) -> list[BranchPoint]:
    """``possible`` with a condition inside the loop first, where the loop itself went round as often as ever.

    Example: [`for batch in loader`, `if loss.isnan(): continue` inside it], and both sides in the same round → the
    `if` first.
    """
    ranks = (alignment.culprits, others_in(alignment))
    skipped = skipped_round(case.sources, possible) if possible and possible[0].uneven else None
    if skipped is None:
        return possible
    better = (
        (gap.past and _came_back(case, gap, possible[0]))
        or skipped.guard.kind == "decorator"  # a cached result skips the call in some rounds
        or skipped.quiet
        or (possible[0].guarded == 0 and never_called_there(case, gap, ranks[1]))
        or _tests_by_calling(possible[0], skipped)
        or goes_round_alike(case, possible[0])
        or _is_over_fixed(case, possible[0])
        or _is_over_as_many(case, possible[0], ranks)
        or _gets_as_many(case, gap, possible[0], ranks)
        or _is_over_parts(case, gap, possible[0], alignment)
        or is_in_last_round(case, possible[0], (alignment.culprits, others_in(alignment))[possible[0].guarded])
        or _skips_within_round(case, gap, possible[0], alignment)
        or plans_rounds_alike(case, possible[0], (gap.mine, gap.theirs), (alignment.culprits, others_in(alignment)))
    )
    return [skipped, *(p for p in possible if p is not skipped)] if better else possible


def _is_over_fixed(case: Case, loop: BranchPoint) -> bool:
    """True if the loop goes over what the program writes out and never changes, to its end."""
    tree = case.sources.function(loop.file, loop.guard.line) if not loop.of_library else None
    if tree is None or ways_out(tree, loop.guard.line):
        return False
    return is_over_fixed(case.sources, tree, loop.guard.line)


def _is_over_as_many(case: Case, loop: BranchPoint, ranks: SideRanks) -> bool:
    """True if the loop goes over a container, to its end, that is seen to hold equally many items on all these ranks.

    Example: `for name, rows in sorted(self.tables.items()):`, and `len(self.tables)` is 3 everywhere.
    """
    tree = case.sources.function(loop.file, loop.guard.line) if not loop.of_library else None
    name = container_of(tree, loop.guard.line) if tree is not None else ""
    if tree is None or not name or ways_out(tree, loop.guard.line):
        return False
    everyone = {rank for side in ranks for rank in side}
    seen = [
        (each.keys(), {value for values in each.values() for value in values})
        for each in case.values.sizes(name, everyone)
    ]
    return bool(seen) and all(everyone <= at and len(values) == 1 and values != {"0"} for at, values in seen)


def _gets_as_many(case: Case, gap: Gap, loop: BranchPoint, ranks: SideRanks) -> bool:
    """True if the program's own iterator makes equally many items for the loop on every rank, and it goes to its end.

    Example: `for step, x in stream.windows():`, and `for step in range(self.plan.steps): ⏎ yield step, read(step)`.
    """
    tree = case.sources.function(loop.file, loop.guard.line) if not loop.of_library else None
    if tree is None or ways_out(tree, loop.guard.line):
        return False
    made = makes_items_alike(
        case.sources, lambda name: case.values.of(loop.file, loop.function, name), loop.file, loop.guard.line
    )
    left = 1 - loop.guarded
    return made is not None and not fell_out(case, loop, ranks[left], (gap.mine, gap.theirs)[left])


def _is_over_parts(case: Case, gap: Gap, loop: BranchPoint, alignment: Alignment) -> bool:
    ranks = (alignment.culprits, others_in(alignment))
    return is_over_parts(case, loop, ranks[1 - loop.guarded], (gap.mine, gap.theirs))


def never_called_there(case: Case, gap: Gap, ranks: tuple[int, ...]) -> bool:
    """True if these ranks have never made the gap's call from its line: they may go round its loop as often, and a
    condition in it keeps them from the call."""
    programs = distinct({rank: case.programs[rank] for rank in ranks if rank in case.programs})
    return bool(programs) and not any(t.site == gap.token.site for program, _ in programs for t in program.tokens)


def _tests_by_calling(loop: BranchPoint, skipped: BranchPoint) -> bool:
    """True if the loop's own test makes the call, below the condition: who asks together whether to go on, goes on
    together, and both sides have asked. Example: `while not done():`, where done() begins with `if local: return`."""
    return loop.guard.in_header and loop.guard.condition.startswith("while ") and skipped.level > loop.level


def _came_back(case: Case, gap: Gap, loop: BranchPoint) -> bool:
    """True unless the side outside of the loop has made no call in it since: then it has left the loop for good."""
    token = (gap.mine, gap.theirs)[1 - loop.guarded]
    program = case.programs.get(token.rank) if token is not None else None
    if token is None or program is None or token.order < 0:
        return True
    return any(is_inside(each, loop) for each in program.tokens[token.order :])


def _skips_within_round(case: Case, gap: Gap, loop: BranchPoint, alignment: Alignment) -> bool:
    """True if the ranks outside had begun the round, in which the condition skipped the call."""
    ranks = (alignment.culprits, others_in(alignment))
    return began_same_round(case, loop, ranks[1 - loop.guarded], (gap.mine, gap.theirs))
