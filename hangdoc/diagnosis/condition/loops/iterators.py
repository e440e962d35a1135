"""By what the program's own iterator ends, or leaves items out, that a loop goes over.

Example: `for batch in loader:`, where loader is a BudgetLoader, and

    37  def __next__(self):
    38      if self.used >= self.budget:
    39          raise StopIteration

→ BudgetLoader.__next__() is decided by the `if` at line 38.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from hangdoc.diagnosis.bounds import LISTED, TRIED
from hangdoc.diagnosis.condition.elsewhere.answers import Answer
from hangdoc.diagnosis.source.guards import CONDITIONS, Guard, guards
from hangdoc.diagnosis.source.loops import without_wrappers
from hangdoc.diagnosis.source.queries import is_generator
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, enclosing_function, last_name, walk
from hangdoc.model.message import Condition

_OBJECT = re.compile(r"<(\w+)>")


def iterator_answers(sources: Sources, shown: Callable[[str], dict[int, str]], file: str, line: int) -> list[Answer]:
    """What decides how many items the `for` at that line gets; [] where that is a library's iterator, or unknown.

    ``shown``: rank → the value of a name in the function of the loop.
    """
    found = _maker(sources, shown, file, line)
    if found is None:
        return []
    called, where, function = found
    name = called if function.name == called else f"{called}.{function.name}"
    tests = tuple(dict.fromkeys(_deciding(where, function)))[:LISTED]
    return [Answer(name, tests)] if tests else []


def _maker(
    sources: Sources, shown: Callable[[str], dict[int, str]], file: str, line: int
) -> tuple[str, str, ast.FunctionDef] | None:
    """(what is asked for items, its file, the function that makes them) of the `for` at that line; None where that is a
    library's iterator, or unknown."""
    tree = sources.function(file, line)
    loops = [n for n in walk(tree) if isinstance(n, ast.For) and n.lineno == line] if tree is not None else []
    if tree is None or not loops:
        return None
    source = without_wrappers(loops[0].iter)
    if isinstance(source, ast.Call):
        called = last_name(source.func)
        found = [each for each in sources.user_functions(called) if _yields(each[1])]
        found = found or list(iter(()))
    else:
        made = set(shown(dotted(source)).values())
        match = _OBJECT.fullmatch(next(iter(made))) if len(made) == 1 else None
        found, called = (list(iter(())) if match else []), match[1] if match else ""
    return (called, *found[0]) if len(found) == 1 else None


def _yields(function: ast.FunctionDef) -> bool:
    return is_generator(function, function.body[0].lineno)


def _deciding(file: str, function: ast.FunctionDef) -> list[Condition]:
    """The conditions around what yields, ends or leaves out an item, in the order of their lines.

    One that yields in both arms decides what kind of items are made: their number, the loops in its arms. Example: `if
    first: ⏎ for part in x.chunk(n): ⏎ yield part ⏎ else: ⏎ for _ in range(n): ⏎ yield pull()` → both loops.
    """
    found = _guards_deciding(function)
    kept = list(found)
    return [
        Condition(g.condition, file, g.line)
        for g in sorted(
            {
                *kept,
            },
            key=lambda g: g.line,
        )
    ]


def _guards_deciding(function: ast.FunctionDef) -> list[Guard]:
    lines = [n.lineno for n in walk(function) if isinstance(n, ast.Yield | ast.Break | ast.Return | ast.Raise)]
    lines = [line for line in lines if enclosing_function(function, line) is function][:TRIED]
    found = {g for line in lines for g in guards(function, line) if g.kind in (*CONDITIONS, "return")}
    return sorted(found, key=lambda g: g.line)
