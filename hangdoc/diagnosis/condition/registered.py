"""Where the handler was registered that a library calls on one side only: on some ranks, or with a filter of events.

A library calls the handler from its loop, without a condition around the call. What decides is around the line that
gave the library the function, or in that line. Example:

    if rank == 0:
        engine.add_event_handler(Events.EPOCH_COMPLETED, self.validate)    # rank 0 waits below validate()
    engine.add_event_handler(Events.ITERATION_COMPLETED(event_filter=spike), self.dump)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.diagnosis.source.guards import CONDITIONS, Guard, guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import FUNCTIONS, dotted, enclosing_function, last_name, names_in, text_of
from hangdoc.model.process import Frame, Stack

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Registered:
    """A line of the user's that registers the handler ``name``. ``around``: the conditions around it, outermost first;
    ``filter``: the filter of events that it gives; ``level``: the place of the handler on the way."""

    name: str
    frame: Frame
    around: tuple[Guard, ...]
    filter: Guard | None
    level: int


def registered_on_the_way(sources: Sources, way: Stack, other: Stack, at: int) -> list[Registered]:
    """The lines that register the handlers that ``way`` alone is in, from its frame ``at`` on.

    Both are outermost first, and may lack the library's frames. Nothing is said of a function that its caller calls by
    name, nor of a handler that some line registers under no condition and without a filter. Example: as above, rank 0
    below dump() → line 3, with the filter `event_filter=spike`.
    """
    theirs = {plain(frame.function) for frame in other}
    found: list[Registered] = []
    for level in range(max(at, 1), len(way)):
        frame, caller = way[level], way[level - 1]
        name = plain(frame.function)
        by_name = f"{name}(" in (sources.line(caller.file, caller.line) or "")
        if is_library(frame) or by_name or name in theirs or name.startswith(("<", "__")):
            continue
        theirs.add(name)
        lines = [Registered(name, *each, level) for each in _registering(sources, name)]
        found += lines if all(each.around or each.filter for each in lines) else []
    return found


def _registering(sources: Sources, name: str) -> Iterator[tuple[Frame, tuple[Guard, ...], Guard | None]]:
    """(the line, the conditions around it, its filter) of each call in the user's code that is given the function, and
    of each decorator of it that is a call."""
    seen: set[tuple[str, int]] = set()
    for file in sources.files():
        if is_library(Frame(file, 0, "")):
            continue
        for _, tree in sources.trees(file):
            for node in ast.walk(tree):
                for call in _calls_given(tree, node, name):
                    line = node.lineno if isinstance(node, _DEFINITIONS) else call.lineno
                    if (file, line) in seen:
                        continue
                    seen.add((file, line))
                    yield _of_line(file, tree, node, call, line)


def _calls_given(tree: ast.AST, node: ast.AST, name: str) -> list[ast.Call]:
    """The calls by which the node gives the function away: itself, or its decorators. A variable of that name is none.

    Example: `engine.on(STARTED, self.dump)` gives dump away, and so does `engine.on(STARTED, dump)`.
    """
    if isinstance(node, _DEFINITIONS):
        decorators = node.decorator_list if node.name == name else []
        return [each for each in decorators if isinstance(each, ast.Call)]
    if not isinstance(node, ast.Call):
        return []
    given = [*node.args, *(word.value for word in node.keywords)]
    taken = [each for each in given if isinstance(each, ast.Name | ast.Attribute) and last_name(each) == name]
    if any(isinstance(each, ast.Attribute) for each in taken):
        return [node]
    return [node] if taken and name not in _variables(enclosing_function(tree, node.lineno)) else []


def _variables(function: ast.AST) -> set[str]:
    """The names that the function sets, its arguments included."""
    nodes = list(ast.walk(function))
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return stored | {n.arg for n in nodes if isinstance(n, ast.arg)}


def _of_line(
    file: str, tree: ast.AST, node: ast.AST, call: ast.Call, line: int
) -> tuple[Frame, tuple[Guard, ...], Guard | None]:
    """The line with the conditions around it and the filter in it. A decorator's conditions are those around the whole
    definition, in the function that makes it."""
    outer = next(
        (f for f in ast.walk(tree) if isinstance(f, FUNCTIONS) and f is not node and node in ast.walk(f)), None
    )
    function = outer if isinstance(node, _DEFINITIONS) and outer is not None else enclosing_function(tree, line)
    around = _around_definition(function, node) if isinstance(node, _DEFINITIONS) else guards(tree, line)
    frame = Frame(file, line, getattr(function, "name", "<module>"))
    return frame, tuple(each for each in around if each.kind in CONDITIONS), _filter_of(call)


def _around_definition(function: ast.AST, node: ast.AST) -> list[Guard]:
    """The `if`s of the function that hold the definition, outermost first."""
    holding = [n for n in ast.walk(function) if isinstance(n, ast.If) and any(node in ast.walk(s) for s in n.body)]
    return [
        Guard("if", n.lineno, f"if {text_of(n.test)}:", True, names_in(n.test), (n.lineno, n.end_lineno or n.lineno))
        for n in holding
    ]


def _filter_of(call: ast.Call) -> Guard | None:
    """What the call gives as a filter of events, in itself or in an event that it is given.

    Example: `engine.on(Events.ITERATION_COMPLETED(event_filter=spike))` → the condition `event_filter=spike`.
    """
    first, last = call.lineno, call.end_lineno or call.lineno
    for each in (call, *(given for given in call.args if isinstance(given, ast.Call))):
        for word in (word for word in each.keywords if word.arg in names("filters_events")):
            condition = f"{word.arg}={text_of(word.value)}"
            return Guard("expression", word.value.lineno, condition, True, names_in(word.value), (first, last))
        if each.args and pattern("filterable_event").search(dotted(each.func)):
            return Guard("expression", each.lineno, text_of(each), True, names_in(each.args[0]), (first, last))
    return None
