"""Where a user's iterator leaves items out: fewer of them end the loop over it early."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.condition.branch_point import BranchPoint, is_rank_name
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import LOOPS, last_name, names_in, text_of
from hangdoc.model.message import Condition


def items_left_out(sources: Sources, loop: BranchPoint) -> list[Condition]:
    """The conditions around the `yield` of the generator that the loop goes over, or of the only `__iter__` there is;
    those of a comprehension itself.

    Example: `for batch in source:`, and Source.__iter__() has `if not self.usable(x): continue` before its `yield x` →
    that `if`.
    """
    tree = sources.function(loop.file, loop.guard.line)
    nodes = ast.walk(tree) if tree is not None else iter(())
    at = next((n for n in nodes if isinstance(n, ast.For | ast.AsyncFor) and n.lineno == loop.guard.line), None)
    over = at.iter if at is not None else None
    if isinstance(over, ast.Call) and last_name(over.func) in ("enumerate", "iter", "tqdm") and over.args:
        over = over.args[0]
    if isinstance(over, ast.Name) and tree is not None:
        over = _last_set(tree, over.id, loop.guard.line) or over
    if isinstance(over, ast.GeneratorExp | ast.ListComp):
        tests = [test for each in over.generators for test in each.ifs if not any(map(is_rank_name, names_in(test)))]
        return [Condition(f"if {text_of(test)}", loop.file, test.lineno) for test in tests]
    if over is None:
        return []
    called = last_name(over.func) if isinstance(over, ast.Call) else ""
    made = list(sources.user_functions(called)) if called else []
    made = made or list(sources.user_functions("__iter__"))
    return _around_yields(*made[0]) if len(made) == 1 else []


def _last_set(tree: ast.AST, name: str, line: int) -> ast.expr | None:
    """What the name was set to before the line; None where no plain assignment of it is there."""
    found = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and node.lineno < line
        and any(isinstance(each, ast.Name) and each.id == name for each in node.targets)
    ]
    return max(found, key=lambda value: value.lineno, default=None)


def _around_yields(file: str, function: ast.FunctionDef) -> list[Condition]:
    """The conditions in the loops of a generator that its items have to pass, but for those on the rank."""
    found: dict[Condition, None] = {}
    loops = [node for node in ast.walk(function) if isinstance(node, LOOPS)]
    for node in ast.walk(function):
        if not isinstance(node, ast.Yield):
            continue
        for guard in guards(function, node.lineno):
            inside = any(each.lineno < guard.line <= (each.end_lineno or 0) for each in loops)
            if inside and guard.kind in CONDITIONS and not any(is_rank_name(name) for name in guard.names):
                found[Condition(guard.condition, file, guard.line)] = None
    return list(found)
