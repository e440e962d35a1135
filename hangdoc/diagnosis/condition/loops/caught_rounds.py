"""A handler in a loop that goes on with the next round, after what the program itself raises before the round's call.

Example: a rank whose document holds no tokens makes the all_reduce in train() once less:

    1  for doc in documents:
    2      try:
    3          train(doc)
    4      except BadDocument:
    5          self.skipped += 1
    6  def train(doc):
    7      if not doc.tokens:
    8          raise BadDocument
    9      dist.all_reduce(loss(doc))

→ `except BadDocument:`, raised under `if not doc.tokens:`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.elsewhere.raised import raised_before
from hangdoc.diagnosis.condition.loops.held import items_held
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.equal_counts import kept_by
from hangdoc.diagnosis.source.handlers import Swallowing, swallowing
from hangdoc.diagnosis.source.syntax import dotted, enclosing_function, last_name, walk
from hangdoc.diagnosis.source.values import SideRanks
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame, Stack

_MOST_RAISED = 2
"""Conditions; more of them are no reason any more. Chosen by hand."""


@dataclass(frozen=True, slots=True)
class CaughtRound:
    """``handler`` goes on; ``raised``: the conditions under which the program raises what it catches."""

    handler: Condition
    raised: list[Condition]


def caught_rounds(case: Case, loop: BranchPoint, stack: Stack, ranks: SideRanks) -> Iterator[CaughtRound]:
    """Such handlers around the call of that stack within a round of the loop, the innermost first; none whose own count
    shows that side 0, which made fewer calls, was not in it more often than side 1."""
    own = user_stack(stack)
    at = next((i for i, f in enumerate(own) if (f.file, plain(f.function)) == (loop.file, loop.function)), -1)
    for inner, frame in enumerate(own[: at + 1]):
        for tried in swallowing(case.sources, frame):
            if inner == at and (tried.first <= loop.guard.line or _ends_loop(case, frame, tried)):
                continue
            raised = raised_before(case.sources, tuple(reversed(own[: inner + 1])), tried.body[0], tried.line)
            if (
                not raised
                and _python_may_raise(case, tuple(reversed(own[: inner + 1])), tried)
                and _keeps_items(case, loop)
            ):
                yield CaughtRound(Condition(tried.condition, frame.file, tried.line), [])
            elif 1 <= len(raised) <= _MOST_RAISED and not _was_not_there(case, tried, ranks):
                yield CaughtRound(Condition(tried.condition, frame.file, tried.line), raised)


def _python_may_raise(case: Case, way: Stack, tried: Swallowing) -> bool:
    """True if the handler catches what a lookup, a conversion or a division raises, and such a one comes before the
    call, in the functions from that of the `try` inwards. Example: `column = table[name]` in `with suppress(KeyError)`.
    """
    caught = set(re.findall(r"\w+", tried.condition))
    kinds = tuple(kind for name, kind in _RAISED_BY.items() if not caught.isdisjoint(names(name)))
    for at, frame in enumerate(way if kinds else ()):
        tree = case.sources.function(frame.file, frame.line)
        here = enclosing_function(tree, frame.line) if tree is not None else ast.Module([], [])
        first = tried.body[0] if not at else getattr(here, "lineno", 0) + 1
        nodes = [n for n in walk(here) if first <= getattr(n, "lineno", 0) < frame.line]
        if any(fits(node) for node in nodes for fits in kinds):
            return True
    return False


def _looks_up(node: ast.AST) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and not isinstance(node.slice, ast.Slice)


def _converts(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) in names("converts_text")


def _divides(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.FloorDiv | ast.Mod)


_RAISED_BY = {"raised_by_lookup": _looks_up, "raised_by_conversion": _converts, "raised_by_division": _divides}


def _keeps_items(case: Case, loop: BranchPoint) -> bool:
    """True for a loop over what is held in a name, which nothing is seen to leave items out of: not over a loader."""
    tree = case.sources.function(loop.file, loop.guard.line)
    at = [n for n in walk(tree) if isinstance(n, ast.For) and n.lineno == loop.guard.line] if tree else []
    over = at[0].iter if len(at) == 1 else None
    while isinstance(over, ast.Call) and (kept := kept_by(over)) is not None:
        over = kept
    named = dotted(over) if isinstance(over, ast.Name | ast.Attribute) else ""
    return bool(named) and not pattern("gives_batches").search(named) and not items_held(case.sources, loop)


def _ends_loop(case: Case, frame: Frame, tried: Swallowing) -> bool:
    """True if the handler may leave the loop, in whose function it is."""
    tree = case.sources.function(frame.file, tried.line)
    handlers = (n for n in walk(tree) if isinstance(n, ast.ExceptHandler)) if tree is not None else ()
    suite = (n for each in handlers if each.lineno == tried.line for n in walk(each))
    return any(isinstance(n, ast.Break | ast.Return) for n in suite)


def _was_not_there(case: Case, tried: Swallowing, ranks: SideRanks) -> bool:
    """True if a number that the handler alone sets is seen, and is no higher on side 0."""
    for mark in tried.marks:
        for _, shown in case.values.named(mark.rpartition(".")[2]):
            fewer, others = ([shown.get(rank, "") for rank in side] for side in ranks)
            numbers = bool(fewer and others) and all(each.isdecimal() for each in (*fewer, *others))
            if numbers and min(map(int, fewer)) <= max(map(int, others)):
                return True
    return False
