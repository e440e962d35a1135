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
from collections.abc import Callable, Iterator

from hangdoc.diagnosis.condition.elsewhere.answers import MOST_TESTS, Answer
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.queries import is_generator
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, enclosing_function, last_name
from hangdoc.model.message import Condition

_MOST_PLACES = 16
"""Lines of one iterator that yield or end; chosen by hand."""
_OBJECT = re.compile(r"<(\w+)>")


def iterator_answers(sources: Sources, shown: Callable[[str], dict[int, str]], file: str, line: int) -> list[Answer]:
    """What decides how many items the `for` at that line gets; [] where that is a library's iterator, or unknown.

    ``shown``: rank → the value of a name in the function of the loop.
    """
    tree = sources.function(file, line)
    loops = [n for n in ast.walk(tree) if isinstance(n, ast.For) and n.lineno == line] if tree is not None else []
    if tree is None or not loops:
        return []
    source = loops[0].iter
    while isinstance(source, ast.Call) and dotted(source.func) in names("wraps_items") and source.args:
        source = source.args[0]
    if isinstance(source, ast.Call):
        found = [each for each in sources.user_functions(last_name(source.func)) if _yields(each[1])]
        called = f"{last_name(source.func)}"
    else:
        made = set(shown(dotted(source)).values())
        match = _OBJECT.fullmatch(next(iter(made))) if len(made) == 1 else None
        found, called = (list(_of_class(sources, match[1])) if match else []), match[1] if match else ""
    if len(found) != 1:
        return []
    where, function = found[0]
    name = called if function.name == called else f"{called}.{function.name}"
    tests = tuple(dict.fromkeys(_deciding(where, function)))[:MOST_TESTS]
    return [Answer(name, tests)] if tests else []


def _of_class(sources: Sources, name: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """(file, function) by which the objects of the user's one class of that name make their items."""
    classes = {
        (file, node.lineno): node
        for file, tree in sources.user_trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name == name
    }
    for (file, _), node in classes.items():
        for each in node.body:
            if isinstance(each, ast.FunctionDef) and (
                each.name == "__next__" or (each.name == "__iter__" and _yields(each))
            ):
                yield file, each


def _yields(function: ast.FunctionDef) -> bool:
    return is_generator(function, function.body[0].lineno)


def _deciding(file: str, function: ast.FunctionDef) -> Iterator[Condition]:
    """The conditions around what yields, ends or leaves out an item, in the order of their lines."""
    lines = [n.lineno for n in ast.walk(function) if isinstance(n, ast.Yield | ast.Break | ast.Return | ast.Raise)]
    lines = [line for line in lines if enclosing_function(function, line) is function][:_MOST_PLACES]
    found = {g for line in lines for g in guards(function, line) if g.kind in (*CONDITIONS, "return")}
    for guard in sorted(found, key=lambda g: g.line):
        yield Condition(guard.condition, file, guard.line)
