"""The condition at which a side left a loop, and how sure it is that the loop did not end by itself."""

from __future__ import annotations

import ast
from dataclasses import replace

from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.source.guards import way_out_guards
from hangdoc.diagnosis.source.loops import (
    calls_again_after,
    counts_to_a_bound,
    ends_alike,
)
from hangdoc.diagnosis.source.values import SideRanks


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
    if not alike and not (loop.own_arm and calls_again_after(tree, loop.guard.line, loop.line)):
        return None
    return replace(loop, guard=out[0], uneven=False)


def surely_left(case: Case, loop: BranchPoint, ranks: SideRanks) -> bool:
    """True if the loop cannot have ended by itself on one side alone: it has one bound on all ranks, or the names in
    its bound show one value on each of ``ranks``."""
    tree = case.sources.function(loop.file, loop.guard.line)
    if tree is None or ends_alike(tree, loop.guard.line) or loop.guard.in_header:
        return tree is not None
    if not loop.guard.condition.startswith("for "):
        return False
    seen = [case.values.of(loop.file, loop.function, n) for n in counts_to_a_bound(tree, loop.guard.line) or ()]
    return bool(seen) and all(len(set(v.values())) == 1 and all(map(set(v).intersection, ranks)) for v in seen)


def _only_counts(case: Case, loop: BranchPoint, tree: ast.AST) -> bool:
    """True if the loop counts to a bound of which no two ranks show different values."""
    bound = counts_to_a_bound(tree, loop.guard.line)
    return bound is not None and all(
        len(set(case.values.of(loop.file, loop.function, name).values())) < 2 for name in bound
    )
