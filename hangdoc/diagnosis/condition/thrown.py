"""Under which condition the program itself raises what a handler catches.

Example: `except Pruned:` around objective(), in which `if pruner.should_prune(step, loss): ⏎ raise Pruned` → that `if`.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from itertools import islice

from hangdoc.diagnosis.condition.answers import MOST_TESTS, Answer
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.queries import calls_in
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function, last_name
from hangdoc.model.asked import caught_by
from hangdoc.model.message import Condition

_MOST_RAISES = 64
"""Lines that raise one exception; more of them say nothing. Chosen by hand."""


def thrown_under(sources: Sources, file: str, line: int) -> list[Answer]:
    """The functions that raise what the handler at that line catches, each with the conditions of its `raise`.

    Python's own exceptions count where the body of the `try` calls the function by its name: others raise them, too.
    """
    tree = sources.function(file, line)
    tries = (n for n in ast.walk(tree) if isinstance(n, ast.Try)) if tree is not None else ()
    found = next(((node, h) for node in tries for h in node.handlers if h.lineno == line), None)
    if found is None:
        return []
    caught = caught_by(found[1])
    called = {last_name(call.func) for call in calls_in(found[0].body)}
    by_function: dict[str, dict[Condition, None]] = {}
    for function, error, condition in islice(_raised(sources, caught), _MOST_RAISES):
        if not hasattr(builtins, error) or function in called:
            by_function.setdefault(function, {})[condition] = None
    if len(by_function) > MOST_TESTS:
        return []
    return [Answer(name, tuple(tests)[:MOST_TESTS], how="raises it under") for name, tests in by_function.items()]


def _raised(sources: Sources, caught: set[str]) -> Iterator[tuple[str, str, Condition]]:
    """(function, name of the exception, the innermost `if` around it) of each such `raise` in the user's code."""
    trees = ((file, tree, node) for file, tree in sources.user_trees() for node in ast.walk(tree))
    for file, tree, node in trees:
        error = node.exc if isinstance(node, ast.Raise) else None
        name = last_name(error.func if isinstance(error, ast.Call) else error) if error is not None else ""
        if error is not None and name in caught:
            around = [g for g in guards(tree, error.lineno) if g.kind == "if"]
            function = getattr(enclosing_function(tree, error.lineno), "name", "")
            if around and function:
                yield function, name, Condition(around[-1].condition, file, around[-1].line)
