"""The loop whose items choose the group that a call is given, in the function of the call or in a caller.

Example: `for group in groups: reduce(group)`, and in reduce() `dist.all_reduce(x, group=group)` → that `for`.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from hangdoc.diagnosis.bounds import DEEPEST
from hangdoc.diagnosis.condition.elsewhere.as_called import expression_given
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.queries import group_expression
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import (
    enclosing_function,
    holds,
    names_in,
    target_text,
    text_of,
    walk,
)
from hangdoc.model.message import Condition
from hangdoc.model.process import Stack


@dataclass(frozen=True, slots=True)
class ByItem:
    """``group``: the group as the call is given it; ``loop``: the `for` whose items choose it; ``way``: the user's
    frames from that of the loop on, innermost first."""

    group: str
    loop: Condition
    way: Stack


def chosen_by_item(sources: Sources, stack: Stack) -> ByItem | None:
    """The loop whose items choose the group of the innermost user's call, in its function or in a caller's; None where
    none does.

    Example: `for bucket in self.plan(): ⏎ bucket.flush()`, and flush() calls `all_reduce(x, group=self.group)`.
    """
    way = list(user_stack(stack))
    tree = sources.function(way[0].file, way[0].line) if way else None
    given = group_expression(tree, way[0].line) if tree is not None else None
    known = set(names_in(given))
    for level, frame in enumerate(way[:DEEPEST]):
        tree = sources.function(frame.file, frame.line)
        if tree is None or not known:
            return None
        here = enclosing_function(tree, frame.line)
        loops = [n for n in walk(here) if isinstance(n, ast.For | ast.AsyncFor) and holds(n, frame.line)]
        heads = {name.partition(".")[0] for name in known}
        for loop in sorted(loops, key=lambda n: n.lineno, reverse=True):
            if heads & {n.id for n in walk(loop.target) if isinstance(n, ast.Name)}:
                header = f"for {target_text(loop.target)} in {text_of(loop.iter)}:"
                return ByItem(text_of(given), Condition(header, frame.file, loop.lineno), tuple(way[level:]))
        caller = way[level + 1] if level + 1 < len(way) else None
        given_there = [expression_given(sources, frame, caller, head) for head in heads] if caller is not None else []
        known = {name for each in given_there for name in names_in(each)}
    return None


def word_for(origin: list[Condition]) -> str:
    """What they do to it: conditions decide, other lines set."""
    decides = bool(origin) and origin[0].source.partition(" ")[0].rstrip(":") in ("if", "case", "except")
    return ("decide" if decides else "set") + ("s" if len(origin) == 1 else "")
