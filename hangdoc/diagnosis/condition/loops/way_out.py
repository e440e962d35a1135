"""The condition at which a side left a loop, and how sure it is that the loop did not end by itself."""

from __future__ import annotations

import ast
from dataclasses import replace

from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.tested import SEEN, decided
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.source.guards import Guard, way_out_guards
from hangdoc.diagnosis.source.loops import counts_to_a_bound, ends_alike
from hangdoc.diagnosis.source.values import is_hidden


def way_out_of(case: Case, loop: BranchPoint) -> BranchPoint | None:
    """The condition at which a side left the loop, where its source shows no other way out.

    None for a loop that may also have ended by itself; one whose iterator communicates does so on all ranks at once,
    and one that only counts to a bound hardly has another bound on one rank, unless its value shows it.
    Example: `while True: ⏎ if done: ⏎ break` → `if done:`; `for _ in range(cfg.steps): ⏎ if done: ⏎ break` → the same.
    """
    tree = case.sources.function(loop.file, loop.guard.line)
    out = way_out_guards(tree, loop.guard.line) if tree is not None else []
    if tree is None or len({guard.condition for guard in out}) != 1:
        return None
    alike = ends_alike(tree, loop.guard.line) or loop.guard.in_header or _only_counts(case, loop, tree)
    if not alike:
        return None
    return replace(loop, guard=out[0], uneven=False)


def seen_way_out(case: Case, loop: BranchPoint, left: tuple[int, ...], inside: tuple[int, ...]) -> Guard | None:
    """The condition of a `break` or `return` at which a side was recorded to leave the loop, else the only one that, by
    the counters, was true on each rank that left it, and never on one that is still inside; None where none is, or
    several are.

    The ranks' calls agree up to here, so no rank has left the loop alone before.
    """
    if loop.left_at is not None:
        return loop.left_at
    tree = case.sources.function(loop.file, loop.guard.line) if not loop.of_library else None
    out = way_out_guards(tree, loop.guard.line) if tree is not None and case.table else []
    found = {
        guard.place: guard for guard in out if decided(case.table, loop.file, guard, under=inside, others=left) == SEEN
    }
    return next(iter(found.values())) if len(found) == 1 else None


def surely_left(case: Case, loop: BranchPoint) -> bool:
    """True if the loop cannot have ended by itself on one side alone: it has one bound on all ranks."""
    tree = case.sources.function(loop.file, loop.guard.line)
    return tree is not None and (ends_alike(tree, loop.guard.line) or loop.guard.in_header)


def _only_counts(case: Case, loop: BranchPoint, tree: ast.AST) -> bool:
    """True if the loop counts to a bound of which no two ranks show different values, or may hide them."""
    bound = counts_to_a_bound(tree, loop.guard.line)
    shown = [set(case.values.of(loop.file, loop.function, name).values()) for name in bound or ()]
    return bound is not None and all(len(each) < 2 and not any(map(is_hidden, each)) for each in shown)
