"""Which is likelier where a side made one call of a loop fewer: a round that skipped the call, or a loop that ended?

The calls do not tell them apart. Two things do: a number that the arm which skips adds to, and what the condition
tests. One that tests the loop's items, or draws at random, goes its own way on each rank. Example:

    1  for batch in loader:
    2      if batch.numel() > limit:
    3          self.skipped += 1        # 1 on rank 1, 0 on the others
    4          continue
    5      step(batch)

→ rank 1 skipped a round, by `if batch.numel() > limit:`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hangdoc.diagnosis.bounds import NAMED
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.source.draws import draws_at_random
from hangdoc.diagnosis.source.guards import CONDITIONS
from hangdoc.diagnosis.source.items import names_of_items
from hangdoc.diagnosis.source.loops import ways_out
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import last_name, names_in, walk
from hangdoc.diagnosis.source.values import SideRanks


def likelier_skips(case: Case, loop: BranchPoint, skips: list[BranchPoint], ranks: SideRanks) -> list[BranchPoint]:
    """Those of ``skips`` that explain it better than that the loop ended: the one that a number shows, else all that
    test its items. ``ranks``: as in ``SideRanks``.

    Of a loop that one arm of a condition on the rank runs, the other ranks follow each round: only its end parts them.
    """
    tree = case.sources.function(loop.file, loop.guard.line)
    skips = [each for each in skips if each.guard.kind in CONDITIONS and not each.rank_like]
    if tree is None or loop.own_arm:
        return []
    if loop.guarded != 1:  # which of the others it was, no count tells
        return [each for each in skips if _goes_by_items(case.sources, tree, loop, each)][:NAMED]
    counted = [each for each in skips if skips_counted(case, each, ranks)]
    if counted or ways_out(tree, loop.guard.line):
        return counted[:1]
    skips = [each for each in skips if not _never_skipped(case, each, ranks)]
    return [each for each in skips if _goes_by_items(case.sources, tree, loop, each)][:NAMED]


def skips_counted(case: Case, skip: BranchPoint, ranks: SideRanks) -> dict[str, dict[int, str]]:
    """Name → rank → value of each number that the arm which skips adds to, and that is higher on every rank of side 0,
    which made fewer calls, than on any of side 1.

    Example: as above → {'self.skipped': {0: '0', 1: '1', 2: '0'}}.
    """
    return {n: shown for n, shown, (low, high) in _counts(case, skip, ranks) if low > high}


def _never_skipped(case: Case, skip: BranchPoint, ranks: SideRanks) -> bool:
    """True if such numbers are seen, and show that side 0 was not in that arm more often than the others."""
    counts = [low > high for _, _, (low, high) in _counts(case, skip, ranks)]
    return bool(counts) and not any(counts)


def _counts(case: Case, skip: BranchPoint, ranks: SideRanks) -> Iterator[tuple[str, dict[int, str], tuple[int, int]]]:
    """(name, rank → value, (the least of side 0, the most of side 1)) of each number that the arm which skips adds
    to."""
    for added in dict.fromkeys(_added_to(case.sources, skip)):
        for name, per_rank in case.values.named(added):
            fewer, others = ([per_rank.get(rank, "") for rank in side] for side in ranks)
            if fewer and others and all(value.isdecimal() for value in (*fewer, *others)):
                yield name, per_rank, (min(map(int, fewer)), max(map(int, others)))


def _added_to(sources: Sources, skip: BranchPoint) -> Iterator[str]:
    """What the arm that skips the call adds to; where the condition asks a function, the arm in which that answers."""
    yield from _sums_under(sources, skip.file, skip.guard.line, taken=not skip.guard.taken)


def _sums_under(sources: Sources, file: str, line: int, *, taken: bool) -> Iterator[str]:
    """The last names of what one arm of the `if` at the line adds to: 'skipped' of `self.skipped += 1`."""
    tree = sources.function(file, line)
    at = [n for n in walk(tree) if isinstance(n, ast.If) and n.lineno == line] if tree is not None else []
    for node in (each for found in at for each in (found.body if taken else found.orelse)):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and last_name(node.target):
            yield last_name(node.target)


def _goes_by_items(sources: Sources, tree: ast.AST, loop: BranchPoint, skip: BranchPoint) -> bool:
    """True if the condition tests what the loop's items hold, or draws at random."""
    own = sources.function(skip.file, skip.guard.line)
    tests = walk(own) if own is not None else iter(())
    test = next((n.test for n in tests if isinstance(n, ast.If | ast.IfExp) and n.lineno == skip.guard.line), None)
    if own is None or test is None:
        return False
    heads = {name.partition(".")[0] for name in names_in(test)}
    function = skip.function if (skip.file, skip.function) != (loop.file, loop.function) else ""
    return draws_at_random(test) or not heads.isdisjoint(names_of_items(sources, tree, loop.guard, function))
