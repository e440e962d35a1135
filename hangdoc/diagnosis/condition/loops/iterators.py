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
from dataclasses import replace

from hangdoc.diagnosis.bounds import DEEPEST, LISTED, TRIED
from hangdoc.diagnosis.condition.elsewhere.answers import Answer
from hangdoc.diagnosis.source.guards import CONDITIONS, Guard, guards
from hangdoc.diagnosis.source.loops import without_wrappers
from hangdoc.diagnosis.source.queries import is_generator
from hangdoc.diagnosis.source.settings import Place, place_of, settings
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, enclosing_function, holds, last_name, walk
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


def makes_items_alike(
    sources: Sources, shown: Callable[[str], dict[int, str]], file: str, line: int
) -> Condition | None:
    """The loop in which the program's own iterator makes the items of the `for` at that line, where it makes equally
    many on every rank: it yields in each round of `for … in range(…)`, up to what is written out in the program, and
    nothing else ends it. None for others, and for an unknown one.

    Example: `for i in range(self.cfg.rounds): ⏎ yield make(i)`, with `rounds: int = 60` in a dataclass → that `for`.
    """
    found = _maker(sources, shown, file, line)
    if found is None:
        return None
    _, where, function = found
    yields = [n for n in walk(function) if isinstance(n, ast.Yield | ast.YieldFrom)]
    around = guards(function, yields[0].lineno) if yields else []
    loops = [n for n in walk(function) if isinstance(n, ast.For) and holds(n, yields[0].lineno)] if yields else []
    if len(yields) != 1 or isinstance(yields[0], ast.YieldFrom) or not loops or len(loops) != len(around):
        return None
    if any(isinstance(n, _LEAVES) for n in walk(function)):
        return None
    at = place_of(sources, where, function.lineno)
    at = replace(at, function=function) if at is not None else None
    if not all(_has_written_bound(sources, at, loop.iter) for loop in loops):
        return None
    return Condition(around[-1].condition, where, around[-1].line)


_LEAVES = (ast.Return, ast.Break, ast.Continue, ast.Raise, ast.Try)


def _has_written_bound(sources: Sources, at: Place | None, source: ast.expr) -> bool:
    if not isinstance(source, ast.Call) or dotted(source.func) != "range" or source.keywords:
        return False
    return all(_is_written(sources, at, each) for each in source.args)


def _is_written(sources: Sources, at: Place | None, value: ast.expr) -> bool:
    """True for what the source shows to be one number on every rank: written there, in the program's one setting of an
    attribute of that name, or in the only call of the function whose parameter it is."""
    if isinstance(value, ast.Constant):
        return True
    if isinstance(value, ast.Attribute):
        return _is_written_out(sources, value.attr)
    given = settings(sources, at, value) if at is not None and isinstance(value, ast.Name) else []
    return len(given) == 1 and given[0].how == "given" and isinstance(given[0].value, ast.Constant)


def _is_written_out(sources: Sources, name: str) -> bool:
    """True if the program gives an attribute of that name, and a parameter, one constant at most, and nothing else."""
    values: set[str] = set()
    for node in (each for _, tree in sources.user_trees() for each in walk(tree)):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.For | ast.NamedExpr):
            if any(last_name(part) == name for each in targets if each is not None for part in walk(each)):
                value = getattr(node, "value", None) if not isinstance(node, ast.AugAssign) else node
                values |= {ast.dump(value) if isinstance(value, ast.Constant) else ""} if value is not None else set()
        elif isinstance(node, ast.keyword) and node.arg == name:
            values.add(ast.dump(node.value) if isinstance(node.value, ast.Constant) else "")
        elif isinstance(node, ast.Call) and _may_fill(sources, node, name):
            values.add("")
    return len(values) == 1 and "" not in values


def _may_fill(sources: Sources, call: ast.Call, name: str) -> bool:
    """True if the call may give a field of that name its value without naming it: `Config(9)`, `Config(**read())`, or
    `setattr(config, key, value)`."""
    if dotted(call.func) == "setattr":
        return len(call.args) > 1 and not isinstance(call.args[1], ast.Constant)
    if not call.args and all(each.arg for each in call.keywords):
        return False
    fields = (n for _, _, node in sources.user_classes(last_name(call.func)) for n in node.body)
    return any(isinstance(n, ast.AnnAssign) and dotted(n.target) == name for n in fields)


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
