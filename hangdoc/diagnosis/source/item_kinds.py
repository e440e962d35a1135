"""What kind of items a loop goes over, as far as the source says: what is the same advice for one is harm to another.

Items of a list can be counted before the loop, and each rank may go over as many of its own. Of a table's keys, equal
numbers are not enough: the ranks' n-th keys would differ. What an iterator yields cannot be counted before.
"""

from __future__ import annotations

import ast
from enum import Enum

from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.settings import Place, settings
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import last_name

_MOST_STEPS = 4
"""Settings that are followed back one from another; chosen by hand."""


class Items(Enum):
    """The kinds of items."""

    KEYS = "keys"
    COUNTED = "counted"
    YIELDED = "yielded"


def kind_of_items(over: ast.expr, sources: Sources | None = None, at: Place | None = None) -> Items | None:
    """The kind of what a loop goes over; None where the source does not tell. Without ``at``, by its own words alone.

    Examples: `sorted(scores)` with `scores = {}` before it → KEYS; `rows` with `rows = [f(x) for x in table]` →
    COUNTED; `batches(cfg)` whose body yields → YIELDED.
    """
    return _kind(over, sources, at, _MOST_STEPS)


def _kind(over: ast.expr, sources: Sources | None, at: Place | None, steps: int) -> Items | None:
    if isinstance(over, ast.Dict | ast.DictComp | ast.Set | ast.SetComp):
        return Items.KEYS
    if isinstance(over, ast.List | ast.Tuple | ast.ListComp):
        return Items.COUNTED
    if isinstance(over, ast.GeneratorExp):
        return Items.YIELDED
    if isinstance(over, ast.Subscript) and isinstance(over.slice, ast.Slice):
        return Items.COUNTED
    called = last_name(over.func) if isinstance(over, ast.Call) else ""
    if called in names("gives_keys"):
        return Items.KEYS
    if isinstance(over, ast.Call) and called in names("keeps_items") and over.args:
        of = _kind(over.args[0], sources, at, steps)
        return Items.COUNTED if of is Items.YIELDED else of
    if sources is None or at is None or not steps:
        return None
    kinds: set[Items | None] = set()
    for each in settings(sources, at, over):
        if isinstance(each.node, ast.Yield):
            kinds.add(Items.YIELDED)
        elif each.value is not None and each.part < 0 and each.how in ("set", "given", "returned"):
            kinds.add(_kind(each.value, sources, each.at, steps - 1))
    return kinds.pop() if len(kinds) == 1 else None
