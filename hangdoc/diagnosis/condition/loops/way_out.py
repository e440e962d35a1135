"""The condition at which a side left a loop, and how sure it is that the loop did not end by itself."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from hangdoc.diagnosis.bounds import LISTED
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.tested import SEEN, decided
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.source.guards import Guard, way_out_guards
from hangdoc.diagnosis.source.loops import (
    calls_again_after,
    counts_to_a_bound,
    ends_alike,
)
from hangdoc.diagnosis.source.queries import sets_attribute
from hangdoc.diagnosis.source.syntax import LOOPS, dotted, enclosing_function, walk
from hangdoc.diagnosis.source.values import SideRanks, is_hidden


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


def ways_out_of(case: Case, loop: BranchPoint, ranks: SideRanks) -> list[BranchPoint]:
    """The conditions at one of which a side surely left the loop, the likeliest first; [] where it may have ended by
    itself, and where there are too many.

    What each round sets anew goes its own way on each rank, what only counts the rounds hardly does. Example: of `while
    True: ⏎ loss = step() ⏎ if loss < goal: ⏎ break ⏎ n += 1 ⏎ if n == most: ⏎ return` → `if loss < goal:` first.
    """
    tree = case.sources.function(loop.file, loop.guard.line) if not loop.of_library else None
    out = way_out_guards(tree, loop.guard.line) if tree is not None else []
    if tree is None or not 2 <= len({guard.place for guard in out}) <= LISTED or not surely_left(case, loop, ranks):
        return []
    loops = (n for n in walk(tree) if isinstance(n, LOOPS) and n.lineno == loop.guard.line)
    nodes = [node for found in loops for each in found.body for node in walk(each)]
    stored = {dotted(n) for n in nodes if isinstance(getattr(n, "ctx", None), ast.Store)} - set(loop.guard.counters)

    def rank(guard: Guard) -> tuple[bool, bool]:
        return not set(guard.names).isdisjoint(loop.guard.counters), set(guard.names).isdisjoint(stored)

    return [replace(loop, guard=guard, uneven=False) for guard in sorted(dict.fromkeys(out), key=rank)]


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


def surely_left(case: Case, loop: BranchPoint, ranks: SideRanks) -> bool:
    """True if the loop cannot have ended by itself on one side alone: it has one bound on all ranks, or the names in
    its bound show one number on each of ``ranks``, which nothing has set since."""
    tree = case.sources.function(loop.file, loop.guard.line)
    if tree is None or ends_alike(tree, loop.guard.line) or loop.guard.in_header:
        return tree is not None
    if not loop.guard.condition.startswith("for "):
        return False
    bound = counts_to_a_bound(tree, loop.guard.line)
    return bool(bound) and all(_is_one_number(case, loop, tree, name, ranks) for name in bound or ())


def _is_one_number(case: Case, loop: BranchPoint, tree: ast.AST, name: str, ranks: SideRanks) -> bool:
    """True if the name shows the same number on all of these ranks, and showed it when the loop began."""
    seen = case.values.tested(case.sources, loop.file, loop.function, loop.guard, name)
    found = {seen.get(rank, "") for side in ranks for rank in side}
    if len(found) != 1 or not _NUMBER.fullmatch(next(iter(found))):
        return False
    attribute = name.rpartition(".")[2] if "." in name else ""
    if attribute:
        return not any(sets_attribute(each, attribute) for _, each in case.sources.user_trees())
    here = enclosing_function(tree, loop.guard.line)
    stored = (n for n in walk(here) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store | ast.Del))
    return all(node.lineno < loop.guard.line for node in stored if node.id == name)


_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def _only_counts(case: Case, loop: BranchPoint, tree: ast.AST) -> bool:
    """True if the loop counts to a bound of which no two ranks show different values, or may hide them."""
    bound = counts_to_a_bound(tree, loop.guard.line)
    shown = [set(case.values.of(loop.file, loop.function, name).values()) for name in bound or ()]
    return bound is not None and all(len(each) < 2 and not any(map(is_hidden, each)) for each in shown)
