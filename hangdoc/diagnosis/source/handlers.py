"""Which statements around a line go on after an exception, and what their handlers leave behind."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.diagnosis.source.queries import assignments, calls_in
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, enclosing_function, holds, last_name, text_of, walk
from hangdoc.model.process import Frame

_EXITS = ("__exit__", "__aexit__")


@dataclass(frozen=True, slots=True)
class Swallowing:
    """A `try` or `with` that may go on after an exception, and the suite or line that does so.

    Example: `try: ⏎ step() ⏎ except OutOfMemory: ⏎ self.skipped += 1` → body (2, 2), condition 'except OutOfMemory:',
    line 3, marks ('self.skipped',).
    """

    first: int
    """Where the statement begins."""
    body: tuple[int, int]
    line: int
    condition: str
    marks: tuple[str, ...] = ()
    """The names that only this suite sets, but for their first, constant value."""

    def tries(self, line: int) -> bool:
        """True if the line is in the body that an exception may leave."""
        return self.body[0] <= line <= self.body[1]


def swallowing(sources: Sources, frame: Frame) -> list[Swallowing]:
    """What may swallow an exception that is raised at or below the frame's line, in its own function, the innermost
    first."""
    tree = sources.function(frame.file, frame.line)
    if tree is None:
        return []
    here = enclosing_function(tree, frame.line)
    found = [each for node in walk(here) for each in _of(sources, frame.file, here, node)]
    return sorted((each for each in found if each.tries(frame.line)), key=lambda each: -each.first)


def _of(sources: Sources, file: str, function: ast.AST, node: ast.AST) -> Iterator[Swallowing]:
    if isinstance(node, ast.With | ast.AsyncWith):
        text = next((text_of(i.context_expr) for i in node.items if _may_swallow(sources, i.context_expr)), None)
        if text is not None:
            yield Swallowing(node.lineno, _lines(node.body), node.lineno, f"with {text}:")
    for handler in getattr(node, "handlers", ()):
        if isinstance(handler, ast.ExceptHandler) and isinstance(node, ast.stmt) and _goes_on(handler.body):
            what = f"except {text_of(handler.type)}:" if handler.type else "except:"
            marks = tuple(name for name in _set_in(handler) if _sets_alone(sources, file, function, handler, name))
            yield Swallowing(node.lineno, _lines(getattr(node, "body", [])), handler.lineno, what, marks)


def _lines(body: list[ast.stmt]) -> tuple[int, int]:
    return body[0].lineno, body[-1].end_lineno or body[-1].lineno


def _goes_on(body: list[ast.stmt]) -> bool:
    """False for a suite that surely ends in another exception, or in the end of the process."""
    last = body[-1]
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return dotted(last.value.func) not in names("exits_process")
    return not isinstance(last, ast.Raise)


def _may_swallow(sources: Sources, context: ast.expr) -> bool:
    """True if the context's exit may swallow an exception: `suppress(…)`, a class whose `__exit__` returns something
    else than False, a generator that catches what its `yield` raises. A context that is no call may be of any class."""
    if pattern("swallows_exceptions").search(text_of(context)):
        return True
    called = last_name(context.func) if isinstance(context, ast.Call) else None
    for _, tree in sources.user_trees():
        for node in walk(tree):
            if isinstance(node, ast.ClassDef) and called in (None, node.name) and _exit_swallows(node):
                return True
            if isinstance(node, ast.FunctionDef) and node.name == called and _yields_in_try(node):
                return True
    return False


def _exit_swallows(made: ast.ClassDef) -> bool:
    exits = (n for n in made.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n.name in _EXITS)
    returned = (n.value for each in exits for n in walk(each) if isinstance(n, ast.Return) and n.value is not None)
    return any(not (isinstance(value, ast.Constant) and not value.value) for value in returned)


def _yields_in_try(function: ast.FunctionDef) -> bool:
    return any(
        isinstance(node, ast.Try)
        and any(_goes_on(handler.body) for handler in node.handlers)
        and any(isinstance(n, ast.Yield) for each in node.body for n in walk(each))
        for node in walk(function)
    )


def _set_in(handler: ast.ExceptHandler) -> list[str]:
    """The plain and dotted names that the suite sets or adds to."""
    targets: list[ast.expr] = []
    for node in walk(handler):
        if isinstance(node, ast.Assign):
            targets += node.targets
        elif isinstance(node, ast.AugAssign):
            targets.append(node.target)
    return list(dict.fromkeys(name for each in targets if (name := dotted(each))))


def _sets_alone(sources: Sources, file: str, function: ast.AST, handler: ast.ExceptHandler, name: str) -> bool:
    """True if nothing else sets the name: of an attribute in the file, of a local name in the function; its first
    value, a constant, apart. A constant that is set in the same function may be another way out: it counts."""
    if "." not in name:
        lines = [line for line in assignments(function, name) if not holds(handler, line)]
        return all(line < handler.lineno and _is_first_value(function, line) for line in lines)
    for text, tree in sources.trees(file):
        del text
        for line in assignments(tree, name):
            if not holds(handler, line) and not _is_first_value(tree, line):
                return False
    return True


def _is_first_value(tree: ast.AST, line: int) -> bool:
    """True if the assignment at that line is outside of every loop, and of a constant or of several values at once."""
    loops = (n for n in walk(tree) if isinstance(n, ast.For | ast.AsyncFor | ast.While) and holds(n, line))
    if next(loops, None) is not None:
        return False
    found = (n for n in walk(tree) if isinstance(n, ast.Assign | ast.AnnAssign) and n.lineno == line)
    value = next((n.value for n in found), None)
    parts = value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
    return any(isinstance(part, ast.Constant) for part in parts)


def only_looks_up(tree: ast.AST, line: int) -> bool:
    """True for the `except` suite at that line whose `try:` only looks something up: it tells that it was not there, as
    an `if` does.

    Example: `try: ⏎ return self.known[key] ⏎ except KeyError: ⏎ self.known[key] = self.measure(key)`.
    """
    for node in walk(tree):
        if not isinstance(node, ast.Try) or not any(each.lineno == line for each in node.handlers):
            continue
        value = getattr(node.body[0], "value", None) if len(node.body) == 1 else None
        return isinstance(value, ast.Subscript) and not any(isinstance(each, ast.Call) for each in walk(value))
    return False


def with_at(tree: ast.AST, line: int) -> ast.With | ast.AsyncWith | None:
    """The innermost `with` whose header, or body, holds the line."""
    found = [n for n in walk(tree) if isinstance(n, ast.With | ast.AsyncWith) and holds(n, line)]
    return max(found, key=lambda n: n.lineno, default=None)


def enters(tree: ast.AST, line: int) -> bool:
    """True if the line enters a `with` whose body calls something: what its exit does may be skipped by an exception.

    Example: `with main_process_first(): ⏎ load()`, line 1 → True.
    """
    nodes = (n for n in walk(tree) if isinstance(n, ast.With | ast.AsyncWith))
    headers = (n for n in nodes if any(holds(item.context_expr, line) for item in n.items))
    return any(any(calls_in(n.body)) for n in headers)


def draws_items(tree: ast.AST, begin: int, line: int) -> bool:
    """True if the line is in a loop, from line ``begin`` on, whose next item may raise: anything but a `range` or what
    is written out.

    Example: line 2 of `for batch in loader: ⏎ step(batch)` → True; of `for step in range(9): ⏎ step()` → False.
    """
    loops = (n for n in walk(tree) if isinstance(n, ast.For | ast.AsyncFor) and n.lineno >= begin)
    items = [n.iter for n in loops if any(holds(statement, line) for statement in n.body)]
    plain = (ast.List, ast.Tuple, ast.Set, ast.Constant)
    return any(
        not isinstance(i, plain) and not (isinstance(i, ast.Call) and last_name(i.func) == "range") for i in items
    )


def calls_of(tree: ast.AST, name: str) -> list[int]:
    """The lines that call a function or method by that name, over all lines of each call."""
    found = (n for n in walk(tree) if isinstance(n, ast.Call) and last_name(n.func) == name)
    return [line for n in found for line in range(n.lineno, (n.end_lineno or n.lineno) + 1)]
