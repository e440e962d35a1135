"""Where a user's iterator leaves items out: fewer of them end the loop over it early."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.bounds import DEEPEST
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.frames.names import is_rank_name, names
from hangdoc.diagnosis.source.guards import CONDITIONS, guards, way_out_guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import LOOPS, last_name, names_in, text_of, walk
from hangdoc.model.message import Condition


def items_left_out(sources: Sources, loop: BranchPoint) -> list[Condition]:
    """The conditions that what the loop goes over makes of its items: around the `yield` of a generator, or of the only
    `__iter__` there is; those of a comprehension, and what `filter` and `takewhile` are given.

    Example: `for batch in source:`, and Source.__iter__() has `if not self.usable(x): continue` before its `yield x` →
    that `if`.
    """
    tree = sources.function(loop.file, loop.guard.line)
    nodes = walk(tree) if tree is not None else iter(())
    at = next((n for n in nodes if isinstance(n, ast.For | ast.AsyncFor) and n.lineno == loop.guard.line), None)
    if tree is None or at is None:
        return []
    found = _left_out_of(sources, loop.file, tree, at.iter, loop.guard.line)
    over = at.iter
    known = isinstance(over, ast.Call) and any(True for _ in sources.user_functions(last_name(over.func)))
    if found or known or isinstance(over, ast.GeneratorExp | ast.ListComp):
        return found
    made = list(sources.user_functions("__iter__"))
    found, ends = _around_yields(*made[0]) if len(made) == 1 else ([], [])
    return found or ends


def _left_out_of(
    sources: Sources, file: str, tree: ast.AST, over: ast.expr | None, line: int, steps: int = DEEPEST
) -> list[Condition]:
    """Those of what is made there, else of what that goes over in turn."""
    if over is None or not steps:
        return []
    if isinstance(over, ast.Name):
        return _left_out_of(sources, file, tree, None, line, steps - 1)
    if isinstance(over, ast.GeneratorExp | ast.ListComp):
        tests = [test for each in over.generators for test in each.ifs if not any(map(is_rank_name, names_in(test)))]
        own = [Condition(f"if {text_of(test)}", file, test.lineno) for test in tests]
        return own or _left_out_of(sources, file, tree, over.generators[0].iter, line, steps - 1)
    if not isinstance(over, ast.Call):
        return []
    called = last_name(over.func)
    if called in names("drops_items") and len(over.args) > 1:
        return [Condition(text_of(over), file, over.lineno)]
    if called in names("hands_items_on") and over.args:
        return _left_out_of(sources, file, tree, over.args[0], line, steps - 1)
    made = list(sources.user_functions(called)) if called else []
    if len(made) != 1:
        return []
    where, function = made[0]
    found, ends = _around_yields(where, function)
    returned = next((n.value for n in reversed(function.body) if isinstance(n, ast.Return)), None)
    inner = [
        *over.args,
        *([returned] if returned is not None else []),
    ]
    further = (_left_out_of(sources, where, function, each, 1 << 30, steps - 1) for each in inner)
    return found or next(filter(None, further), ends)


def _around_yields(file: str, function: ast.FunctionDef) -> tuple[list[Condition], list[Condition]]:
    """The conditions in the loops of a generator that its items have to pass, but for those on the rank; and those that
    end it."""
    found: dict[Condition, None] = {}
    ends: dict[Condition, None] = {}
    loops = [node for node in walk(function) if isinstance(node, LOOPS)]
    ways_out = {guard.place for loop in loops for guard in way_out_guards(function, loop.lineno)}
    for node in walk(function):
        if not isinstance(node, ast.Yield):
            continue
        for guard in guards(function, node.lineno):
            inside = any(each.lineno < guard.line <= (each.end_lineno or 0) for each in loops)
            if not inside or guard.kind not in CONDITIONS or any(map(is_rank_name, guard.names)):
                continue
            if guard.place in ways_out:
                ends[Condition(guard.condition, file, guard.line)] = None
            else:
                found[Condition(guard.condition, file, guard.line)] = None
    return sorted(found, key=_shares_out), list(ends)


def _shares_out(condition: Condition) -> bool:
    """True for `if i % workers != worker:`, by which each of several readers takes its part: it says less than what
    asks for the item itself."""
    return " % " in condition.source
