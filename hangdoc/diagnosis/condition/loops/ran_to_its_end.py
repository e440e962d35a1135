"""A loop that counts to a number, and that a side has left with its last count: it ended as it always does.

Example: rank 3 is past `for step in range(60):` with step = 59, and the others are in it with step = 9 to 11. Rank 3
has not left it early; it has gone round it without what the others wait in, and a condition further in decided about
that.
"""

from __future__ import annotations

import ast

from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.source.syntax import dotted, last_name, walk
from hangdoc.diagnosis.source.values import SideRanks


def ran_to_its_end(case: Case, point: BranchPoint, ranks: SideRanks) -> bool:
    """True if the side that is past the loop shows the last number of it, and the other side shows earlier ones of the
    same range."""
    bound = _bound(case, point) if point.uneven and not point.of_library else None
    if bound is None:
        return False
    name, stop = bound
    counts = case.values.of(point.file, point.function, name)
    past, inside = (
        [counts.get(rank, "") for rank in side] for side in (ranks[1 - point.guarded], ranks[point.guarded])
    )
    if not past or not inside or not all(each.isdecimal() for each in (*past, *inside)):
        return False
    return all(int(each) == stop - 1 for each in past) and all(int(each) < stop - 1 for each in inside)


def _bound(case: Case, point: BranchPoint) -> tuple[str, int] | None:
    """(what counts, the number that it does not reach) of `for step in range(60):`; None of any other loop, and where
    the number is not seen, or not alike on all ranks that show it."""
    tree = case.sources.function(point.file, point.guard.line)
    loops = [n for n in walk(tree) if isinstance(n, ast.For) and n.lineno == point.guard.line] if tree else []
    over = loops[0].iter if len(loops) == 1 else None
    if not isinstance(over, ast.Call) or last_name(over.func) != "range" or not _starts_alike(over):
        return None
    stop, counter = over.args[-1], dotted(loops[0].target)
    if isinstance(stop, ast.Constant) and isinstance(stop.value, int):
        return (counter, stop.value) if counter else None
    seen = set(case.values.of(point.file, point.function, dotted(stop)).values()) if dotted(stop) else set()
    number = next(iter(seen), "")
    return (counter, int(number)) if counter and len(seen) == 1 and number.isdecimal() else None


def _starts_alike(counting: ast.Call) -> bool:
    """True of `range(n)` and `range(1, n)`, which begin with the same number on every rank."""
    first = counting.args[:-1]
    return len(counting.args) == 1 or (len(first) == 1 and isinstance(first[0], ast.Constant))
