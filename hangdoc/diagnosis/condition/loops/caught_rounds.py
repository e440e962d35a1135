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
from collections.abc import Iterator
from dataclasses import dataclass

from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.elsewhere.raised import raised_before
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.handlers import Swallowing, swallowing
from hangdoc.diagnosis.source.syntax import walk
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
            if 1 <= len(raised) <= _MOST_RAISED and not _was_not_there(case, tried, ranks):
                yield CaughtRound(Condition(tried.condition, frame.file, tried.line), raised)


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
