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

from hangdoc.diagnosis.bounds import DEEPEST, LISTED, TRIED
from hangdoc.diagnosis.condition.elsewhere.answers import Answer
from hangdoc.diagnosis.source.guards import CONDITIONS, Guard, guards
from hangdoc.diagnosis.source.loops import without_wrappers
from hangdoc.diagnosis.source.queries import is_generator
from hangdoc.diagnosis.source.settings import place_of, settings
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
    source = _made_by(sources, file, line, source) or source
    if isinstance(source, ast.Call):
        called = last_name(source.func)
        found = [each for each in sources.user_functions(called) if _yields(each[1])]
        found = found or list(_of_class(sources, called))
    else:
        made = set(shown(dotted(source)).values())
        match = _OBJECT.fullmatch(next(iter(made))) if len(made) == 1 else None
        found, called = (list(_of_class(sources, match[1])) if match else []), match[1] if match else ""
    return (called, *found[0]) if len(found) == 1 else None


def _made_by(sources: Sources, file: str, line: int, source: ast.expr) -> ast.Call | None:
    """The only call of a generator of the program's that a name of the loop's function was set to, or given: `run(self,
    data)` and `run(stream(rank, 48))` → `stream(rank, 48)`; None where it is no name, or set to something else."""
    at = place_of(sources, file, line)
    for _ in range(DEEPEST):
        made = settings(sources, at, source) if at is not None and isinstance(source, ast.Name) else []
        if len(made) != 1 or made[0].how not in ("set", "given") or made[0].value is None:
            return None
        at, source = made[0].at, without_wrappers(made[0].value)
        if isinstance(source, ast.Call):
            found = list(sources.user_functions(last_name(source.func)))
            return source if found and all(_yields(function) for _, function in found) else None
    return None


def _of_class(sources: Sources, name: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """(file, function) by which the objects of the user's one class of that name make their items."""
    for file, _, node in sources.user_classes(name):
        for each in node.body:
            if isinstance(each, ast.FunctionDef) and (
                each.name == "__next__" or (each.name == "__iter__" and _yields(each))
            ):
                yield file, each


def _yields(function: ast.FunctionDef) -> bool:
    return is_generator(function, function.body[0].lineno)


def _deciding(file: str, function: ast.FunctionDef) -> list[Condition]:
    """The conditions around what yields, ends or leaves out an item, in the order of their lines.

    One that yields in both arms decides what kind of items are made: their number, the loops in its arms. Example: `if
    first: ⏎ for part in x.chunk(n): ⏎ yield part ⏎ else: ⏎ for _ in range(n): ⏎ yield pull()` → both loops.
    """
    found = _guards_deciding(function)
    either = {
        n.lineno for n in walk(function) if isinstance(n, ast.If) and _makes_items(n.body) and _makes_items(n.orelse)
    }
    lines = [n.lineno for n in walk(function) if isinstance(n, ast.Yield | ast.YieldFrom)]
    loops = {g for line in lines for g in guards(function, line) if g.kind == "loop"} if either else set()
    kept = [guard for guard in found if guard.line not in either]
    return [Condition(g.condition, file, g.line) for g in sorted({*kept, *loops}, key=lambda g: g.line)]


def _makes_items(statements: list[ast.stmt]) -> bool:
    return any(isinstance(n, ast.Yield | ast.YieldFrom) for each in statements for n in walk(each))


def _guards_deciding(function: ast.FunctionDef) -> list[Guard]:
    lines = [n.lineno for n in walk(function) if isinstance(n, ast.Yield | ast.Break | ast.Return | ast.Raise)]
    lines = [line for line in lines if enclosing_function(function, line) is function][:TRIED]
    found = {g for line in lines for g in guards(function, line) if g.kind in (*CONDITIONS, "return")}
    return sorted(found, key=lambda g: g.line)
