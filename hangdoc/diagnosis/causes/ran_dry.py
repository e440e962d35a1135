"""HD102 of a loop that ends when what it takes from has nothing left, as the exception says that it catches then."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.causes.call_counts import call_counts
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.branch_point import BranchPoint, is_left_by_exception
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.syntax import LOOPS, holds, last_name, text_of, walk
from hangdoc.model.message import Condition, Joined, Place, Ranks, joined, sentence

_MOST = 3
"""Calls that may have found nothing left, told in one report; chosen by hand."""


@cause("HD102", explains=Diverged, order=178)
def ran_dry(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD102: the culprits' loop took its items by itself, and left by `except StopIteration:` or the like.

    Example: `while True: ⏎ try: ⏎ batch = next(batches) ⏎ except StopIteration: ⏎ break`.
    """
    point, gap = blame.found.branch_point, blame.found.gap
    if gap is None or point is None or point.guarded != 1 or not is_left_by_exception(point):
        return None
    found = _loop_and_try(case, point)
    if found is None:
        return None
    loop, tried = found
    culprits, others = blame.culprits, others_of(case, blame)
    calls = [node for each in tried.body for node in walk(each) if isinstance(node, ast.Call)]
    taking = [call for call in calls if last_name(call.func) in names("takes_next")][:_MOST]
    handler = Condition(_text(tried.handlers[0]), point.file, tried.handlers[0].lineno)
    asked = [Condition(text_of(call), point.file, call.lineno) for call in taking]
    return Finding(
        "HD102",
        sentence(
            [Ranks(culprits), " left the loop early (", Place(point.file, loop.lineno), ")"],
            where_they_wait(case, others),
        ),
        joined(
            [
                [handler, " ended the loop on ", Ranks(culprits), " and not on ", Ranks(others)],
                call_counts(case, blame),
            ],
            [Joined(asked, " or "), " had nothing left there"] if asked else "",
        ),
        "give every rank the same number of items (agree on the count before the loop), or let all ranks agree on when "
        "to stop (all_reduce a flag in every round)",
        decided_at=handler,
    )


def _loop_and_try(case: Case, point: BranchPoint) -> tuple[ast.stmt, ast.Try] | None:
    """The loop that such a handler ends, and its `try`; None for other handlers."""
    tree = case.sources.function(point.file, point.guard.line) if not point.of_library else None
    nodes = list(walk(tree)) if tree is not None else []
    tries = [node for node in nodes if isinstance(node, ast.Try) and holds(node, point.guard.line) and node.handlers]
    tried = max(tries, key=lambda node: node.lineno, default=None)
    if tried is None or not all(map(_is_of_nothing_left, tried.handlers)):
        return None
    around = [n for n in nodes if isinstance(n, LOOPS) and n.lineno < tried.lineno and holds(n, tried.lineno)]
    within = [n for each in tried.body for n in walk(each) if isinstance(n, LOOPS) and holds(n, point.line)]
    loop = within[0] if within else max(around, key=lambda node: node.lineno, default=None)
    leaves = within or any(isinstance(handler.body[-1], ast.Break | ast.Return) for handler in tried.handlers)
    return (loop, tried) if loop is not None and leaves else None


def _is_of_nothing_left(handler: ast.ExceptHandler) -> bool:
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return all(each is not None and last_name(each) in names("nothing_left") for each in types)


def _text(handler: ast.ExceptHandler) -> str:
    return f"except {text_of(handler.type)}:"
