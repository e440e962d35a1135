"""Where a user's iterator leaves items out: fewer of them end the loop over it early."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.bounds import DEEPEST
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.frames.names import is_rank_name, names
from hangdoc.diagnosis.source.guards import CONDITIONS, Guard, guards, way_out_guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import LOOPS, dotted, last_name, names_in, text_of, walk
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
    over = _unwrapped(tree, at.iter, loop.guard.line)
    known = isinstance(over, ast.Call) and any(True for _ in sources.user_functions(last_name(over.func)))
    if found or known or isinstance(over, ast.GeneratorExp | ast.ListComp):
        return found
    made = list(sources.user_functions("__iter__"))
    found, ends = _around_yields(*made[0]) if len(made) == 1 else ([], [])
    return found or ends


def _unwrapped(tree: ast.AST, over: ast.expr, line: int) -> ast.expr:
    """What is gone over, without `enumerate` and the like: `stream` of `for i, x in enumerate(stream)`, or what that
    was set to."""
    for _ in range(DEEPEST):
        if isinstance(over, ast.Call) and over.args and last_name(over.func) in names("hands_items_on"):
            over = over.args[0]
        elif isinstance(over, ast.Name):
            over = _last_set(tree, over.id, line) or over
    return over


def _left_out_of(
    sources: Sources, file: str, tree: ast.AST, over: ast.expr | None, line: int, steps: int = DEEPEST
) -> list[Condition]:
    """Those of what is made there, else of what that goes over in turn."""
    if over is None or not steps:
        return []
    if isinstance(over, ast.Name):
        return _left_out_of(sources, file, tree, _last_set(tree, over.id, line), line, steps - 1)
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
    inner = [*over.args, *([returned] if returned is not None else []), *_asked_by(sources, function)]
    further = (_left_out_of(sources, where, function, each, 1 << 30, steps - 1) for each in inner)
    return found or next(filter(None, further), ends)


def _asked_by(sources: Sources, function: ast.FunctionDef) -> list[ast.expr]:
    """The generators of the program that a generator takes its items from."""
    if not any(isinstance(node, ast.Yield | ast.YieldFrom) for node in walk(function)):
        return []
    calls = [node for node in walk(function) if isinstance(node, ast.Call) and last_name(node.func)]
    made = ((call, list(sources.user_functions(last_name(call.func)))) for call in calls)
    return [
        call
        for call, found in made
        if len(found) == 1
        and found[0][1] is not function
        and any(isinstance(node, ast.Yield | ast.YieldFrom) for node in walk(found[0][1]))
    ]


def _last_set(tree: ast.AST, name: str, line: int) -> ast.expr | None:
    """What the name was set to before the line; None where no plain assignment of it is there."""
    found = [
        node.value
        for node in walk(tree)
        if isinstance(node, ast.Assign)
        and node.lineno < line
        and any(isinstance(each, ast.Name) and each.id == name for each in node.targets)
    ]
    return max(found, key=lambda value: value.lineno, default=None)


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
            elif not is_full(function, guard):
                found[Condition(guard.condition, file, guard.line)] = None
    return sorted(found, key=_shares_out), list(ends)


def _shares_out(condition: Condition) -> bool:
    """True for `if i % workers != worker:`, by which each of several readers takes its part: it says less than what
    asks for the item itself."""
    return " % " in condition.source


def is_full(function: ast.AST, guard: Guard) -> bool:
    """True for a test of how many items a list holds to which the generator adds: it leaves none out, as in `batch +=
    [x] ⏎ if len(batch) == size: ⏎ yield batch`."""
    tests = [n.test for n in walk(function) if isinstance(n, ast.If) and n.lineno == guard.line]
    lengths = [n for test in tests for n in walk(test) if isinstance(n, ast.Call) and last_name(n.func) == "len"]
    held = {dotted(call.args[0]) for call in lengths if call.args} - {""}
    grown = {dotted(n.target) for n in walk(function) if isinstance(n, ast.AugAssign)}
    calls = [n.func for n in walk(function) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    grown |= {dotted(f.value) for f in calls if f.attr in ("append", "extend", "add")}
    return not held.isdisjoint(grown)
