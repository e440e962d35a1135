"""Where an exception can have come from that a handler caught: the conditions of the `raise`s that the calls before a
line lead to.

Example: line 5 was not reached, as line 4 raised; its condition is at line 9:

     2  try:
     3      tell(request)
     4      prompt = prepare(request)
     5      forward(prompt)
     6  except TooLong:
     7      …
     8  def prepare(request):
     9      if len(request.tokens) > LIMIT:
    10          raise TooLong(request.id)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function, holds, last_name
from hangdoc.model.message import Condition
from hangdoc.model.process import Stack

_DEEPEST = 3
"""Calls that are followed to a `raise`; chosen by hand."""
_MOST_READ = 64
"""Functions that are looked into; chosen by hand."""
_MOST = 8
"""Places that raise it; of more, none is likelier. Chosen by hand."""
_ALL = ("Exception", "BaseException")


def raised_before(sources: Sources, way: Stack, since: int, handler: ast.ExceptHandler) -> list[Condition]:
    """The conditions under which what is called before the line of each frame raises what the handler catches.

    ``way``: the frames from that of the `try` inwards; ``since``: the line of the first one from which on it counts.
    """
    names = _caught(sources, handler)
    found: dict[Condition, None] = {}
    read: set[int] = set()
    places = 0
    for at, frame in enumerate(way):
        tree = sources.function(frame.file, frame.line)
        here = enclosing_function(tree, frame.line) if tree is not None else None
        first = since if not at else getattr(here, "lineno", 0)
        if tree is not None and here is not None:
            for each in _raised(sources, frame.file, tree, here, (first, frame.line - 1), names, read, _DEEPEST):
                found[each] = None
                places += 1
                if places > _MOST:
                    return []
    return list(found)


def _caught(sources: Sources, handler: ast.ExceptHandler) -> frozenset[str] | None:
    """The names of the classes that it catches, with those that the program derives from them; None for all."""
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type] if handler.type else []
    names = {last_name(each) for each in types}
    if not names or names & set(_ALL):
        return None
    classes = [n for _, tree in sources.user_trees() for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]
    return frozenset(names | {each.name for each in classes if names & set(map(last_name, each.bases))})


def _raised(
    sources: Sources,
    file: str,
    tree: ast.AST,
    function: ast.AST,
    lines: tuple[int, int],
    names: frozenset[str] | None,
    read: set[int],
    deep: int,
) -> Iterator[Condition]:
    """The conditions of the `raise`s in these lines of the function, and in what they call."""
    for node in ast.walk(function):
        line = getattr(node, "lineno", 0)
        if not lines[0] <= line <= lines[1]:
            continue
        if isinstance(node, ast.Raise) and node.exc is not None:
            raised = last_name(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)
            around = [g for g in guards(tree, line) if g.kind == "if"] if names is None or raised in names else []
            if around:
                yield Condition(around[-1].condition, file, around[-1].line)
        elif isinstance(node, ast.Call) and deep:
            for where, called in sources.user_functions(last_name(node.func)):
                if id(called) not in read and len(read) < _MOST_READ and not holds(called, line):
                    read.add(id(called))
                    whole = (called.lineno, called.end_lineno or called.lineno)
                    yield from _raised(sources, where, called, called, whole, names, read, deep - 1)
