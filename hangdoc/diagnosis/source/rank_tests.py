"""Whether a condition depends on the rank where its own words do not say so: by what the functions in it return."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.bounds import DEEPEST
from hangdoc.diagnosis.frames.names import pattern
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, text_of, walk


def asks_for_rank(sources: Sources, file: str, line: int) -> bool:
    """True if the condition at that line calls a function of the program that compares the rank in what it returns.

    Example: `if self.probe.due(step):`, where `due` returns `step % self.every == 0 and self.rank == 0` → True.
    """
    tree = sources.function(file, line)
    nodes = walk(tree) if tree is not None else ()
    tests = [n.test for n in nodes if isinstance(n, ast.If | ast.IfExp | ast.While) and n.lineno == line]
    return any(_of_functions(sources, test, DEEPEST) for test in tests)


def _of_functions(sources: Sources, expression: ast.AST, deep: int) -> bool:
    called = {dotted(n.func).rpartition(".")[2] for n in walk(expression) if isinstance(n, ast.Call)}
    return deep > 0 and any(_returns_it(sources, name, deep) for name in called - {""})


def _returns_it(sources: Sources, name: str, deep: int) -> bool:
    """True if the program has functions of that name, and each of them returns what depends on the rank."""
    found = [function for _, function in sources.user_functions(name)]
    return bool(found) and all(_depends(sources, function, deep) for function in found)


def _depends(sources: Sources, function: ast.AST, deep: int) -> bool:
    returned = [n.value for n in walk(function) if isinstance(n, ast.Return) and n.value is not None]
    parts = [part for value in returned for part in walk(value)]
    if any(isinstance(part, ast.Compare) and pattern("rank_word").search(text_of(part)) for part in parts):
        return True
    flags = (dotted(part) for part in parts if isinstance(part, ast.Name | ast.Attribute))
    if any(pattern("rank_flag").search(flag) for flag in flags if flag):
        return True
    return any(_of_functions(sources, value, deep - 1) for value in returned)
