"""Where the user's code ends a library's loop: the lines that set what the loop tests."""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass

from hangdoc.diagnosis.source.guards import CONDITIONS, Guard, guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function
from hangdoc.model.process import Frame
from hangdoc.model.stop_flags import flags, leaving_tests, raising_methods, set_at, setters


@dataclass(frozen=True, slots=True)
class Stop:
    """A line that ends a library's loop, and the condition around it.

    Example: `if loss < best: ⏎ trainer.stop()` → line 2, name 'stop', that `if`.
    """

    file: str
    line: int
    name: str
    """The flag that it sets, or the method that it calls."""
    calls: bool
    guard: Guard | None


def stops_of(sources: Sources, loop: Frame) -> list[Stop]:
    """The user's lines that end the library's loop around the line ``loop``, by file and line."""
    tree = sources.function(loop.file, loop.line)
    if tree is None:
        return []
    pieces = [each.body for _, each in sources.trees(loop.file) if isinstance(each, ast.Module)]
    library = ast.Module([statement for body in pieces for statement in body], [])
    names = flags(leaving_tests(enclosing_function(tree, loop.line), raising_methods(library)), library)
    methods = setters(library, names)
    return _setting(sources, names, methods)


def _setting(sources: Sources, names: Collection[str], methods: Collection[str]) -> list[Stop]:
    """The user's lines that set one of these flags, or call one of these methods, by file and line."""
    found: dict[tuple[str, int], Stop] = {}
    for file, each in sources.user_trees():
        for line, name in set_at(each, names, methods):
            tests = [guard for guard in guards(each, line) if guard.kind in CONDITIONS]
            found.setdefault((file, line), Stop(file, line, name, name in methods, tests[-1] if tests else None))
    return [found[key] for key in sorted(found)]
