"""An item that was taken from a queue: whether there is one was decided where the queue is filled.

Example: `if item is None:` ends a thread that has `item = self.inbox.get()`, and on one rank alone

    def offer(self, state):
        try:
            self.inbox.put_nowait(state)
        except queue.Full:
            self.dropped += 1

left items out, so that thread came to its end after fewer rounds.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from hangdoc.diagnosis.condition.branch_point import is_rank_name
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.sources import Sources, UserCall
from hangdoc.diagnosis.source.syntax import dotted, enclosing_function, text_of, walk
from hangdoc.model.asked import is_constant
from hangdoc.model.message import Condition

_MOST = 2
"""Places that fill the queue under a condition; of more, none is likelier. Chosen by hand."""
_MOST_READ = 16
"""Places that fill the queue at all; chosen by hand."""


@dataclass(frozen=True, slots=True)
class Filled:
    """``function`` puts items into ``queue`` under these conditions and handlers."""

    function: str
    queue: str
    under: tuple[Condition, ...]


def filled_by(sources: Sources, file: str, line: int) -> list[Filled]:
    """What fills the queue whose last item, the word to stop, is tested at that line; [] for any other test, and for a
    queue that is filled under no condition, or under too many."""
    tree = sources.function(file, line)
    queue = _taken_from(tree, line) if tree is not None else ""
    if not queue:
        return []
    attribute = queue.rpartition(".")[2]
    puts = [
        put
        for put in sources.user_calls(*names("fills_queue"))
        if isinstance(put.call.func, ast.Attribute) and dotted(put.call.func.value).rpartition(".")[2] == attribute
    ]
    if len(puts) > _MOST_READ:
        return []
    found = [Filled(getattr(put.function, "name", ""), queue, tuple(_under(put))) for put in puts]
    found = [each for each in found if each.under and each.function]
    return found if len(found) <= _MOST else []


def _taken_from(tree: ast.AST, line: int) -> str:
    """The queue that the item comes from which the `if` at the line compares with a constant: 'self.inbox'."""
    test = next((n.test for n in walk(tree) if isinstance(n, ast.If) and n.lineno == line), None)
    if not isinstance(test, ast.Compare) or not isinstance(test.left, ast.Name):
        return ""
    if not all(map(is_constant, test.comparators)):
        return ""
    for node in walk(enclosing_function(tree, line)):
        taken = node.value if isinstance(node, ast.Assign | ast.NamedExpr) else None
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(taken, ast.Call) and any(isinstance(t, ast.Name) and t.id == test.left.id for t in targets):
            function = taken.func
            if isinstance(function, ast.Attribute) and function.attr in names("takes_item") and dotted(function.value):
                return dotted(function.value)
    return ""


def _under(put: UserCall) -> Iterator[Condition]:
    """The innermost condition around the put, unless it tests the rank, and the handlers of the `try` that it is in."""
    line = put.call.lineno
    around = [g for g in guards(put.tree, line) if g.kind in CONDITIONS and not any(map(is_rank_name, g.names))]
    if around:
        yield Condition(around[-1].condition, put.file, around[-1].line)
    for node in walk(put.function):
        if isinstance(node, ast.Try) and node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0):
            for handler in node.handlers:
                if not any(isinstance(each, ast.Raise) for each in walk(handler)):
                    what = f"except {text_of(handler.type)}:" if handler.type else "except:"
                    yield Condition(what, put.file, handler.lineno)
