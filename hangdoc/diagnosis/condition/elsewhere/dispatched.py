"""What was looked up and called on one side alone, or in another order: no condition around the calls tells of it.

Examples: `x = self.ops[name](x)` ran mix() on rank 1, and another entry on the others, which made no call; `for each in
self.callbacks: ⏎ each.on_epoch_end()` ran the method of another object, as a filter chose which callbacks there are.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from itertools import pairwise

from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.elsewhere.callables import set_to
from hangdoc.diagnosis.condition.stack_comparison import within_one_function
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import Fork, fork, same_function
from hangdoc.diagnosis.source.guards import CONDITIONS
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import (
    enclosing_function,
    holds,
    last_name,
    text_of,
    walk,
)
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame, Stack


@dataclass(frozen=True, slots=True)
class Dispatched:
    """``call``, at or before the line ``caller``, ran ``function`` on ``side``: what it is looked up by may differ."""

    call: Condition
    function: str
    side: int
    caller: Frame


def dispatched(sources: Sources, sides: tuple[Stack, Stack]) -> Dispatched | None:
    """The call on the way of one side alone that looks up what it runs: in a table, by `getattr`, or from a variable;
    or the setting that chose between two functions.

    The side that diverged first, the culprits, comes first. None where both sides are in what one line called, unless
    that is a library which called them: a handler after each step on one side, the next step on the other.
    """
    by_type = _called_by_type(sources, sides)
    if by_type is not None:
        return by_type
    where = fork(*sides)
    if within_one_function(sources, where) is None and not _are_run_by_library(sides, where):
        return None
    for side, way in enumerate((where.mine, where.theirs)):
        direct = {(id(inner), id(outer)) for inner, outer in pairwise(sides[side])}  # no library is between them
        for caller, callee in pairwise(way[where.common :]):
            called = (id(callee), id(caller)) in direct
            call = _looked_up(sources, caller, plain(callee.function)) if called else None
            if call is not None:
                line = caller.line if isinstance(call, ast.Call) and holds(call, caller.line) else call.lineno
                told = Condition(text_of(call), caller.file, line)
                return Dispatched(told, plain(callee.function), side, caller)
    return None


def _called_by_type(sources: Sources, sides: tuple[Stack, Stack]) -> Dispatched | None:
    """The call through ``functools.singledispatch`` that only one side is in: the type of what it is given chooses the
    function. Example: `loss_of(sample)`, of which one side is in the function for pairs."""
    for side, stack in enumerate(sides):
        for callee, by, caller in zip(stack, stack[1:], stack[2:], strict=False):
            chosen = plain(by.function) in names("calls_by_type") and by.file.endswith(names("calls_by_type_file"))
            if not chosen or is_library(callee) or any(same_function(callee, each) for each in sides[1 - side]):
                continue
            tree = sources.function(caller.file, caller.line) if not is_library(caller) else None
            found = [n for n in walk(tree) if isinstance(n, ast.Call) and holds(n, caller.line)] if tree else []
            calls = [n for n in found if n.args and _is_generic(sources, n.func)]
            if len(calls) == 1:
                call = Condition(text_of(calls[0]), caller.file, calls[0].lineno)
                return Dispatched(call, plain(callee.function), side, caller)
    return None


def _is_generic(sources: Sources, function: ast.expr) -> bool:
    """True for the name of a function of the program's that `@singledispatch` decorates."""
    defined = (node for _, node in sources.user_definitions(last_name(function)))
    decorators = (each for node in defined for each in getattr(node, "decorator_list", ()))
    return any(last_name(each).startswith("singledispatch") for each in decorators)


def _are_run_by_library(sides: tuple[Stack, Stack], where: Fork) -> bool:
    """True if a library that one line of the user's called has called both sides' functions, two of them."""
    if where.frames is None or not where.common or same_function(*where.frames):
        return False
    pairs = ((way[where.common], way[where.common - 1]) for way in (where.mine, where.theirs))
    direct = ({(id(inner), id(outer)) for inner, outer in pairwise(side)} for side in sides)
    return all((id(inner), id(outer)) not in called for (inner, outer), called in zip(pairs, direct, strict=True))


def looked_up_below(sources: Sources, sides: tuple[Stack, Stack], point: BranchPoint) -> Dispatched | None:
    """The call at or below the condition, on the side under it, that looks up what it runs: the other side may have
    gone the same way there, and run another function. None of a condition that is seen to differ.

    Example: `if (run := TABLE.get(kind)) is not None: ⏎ run(x)`.
    """
    if point.rank_like or point.differs or point.seen or point.uneven or point.guard.kind not in CONDITIONS:
        return None
    found = dispatched(sources, sides)
    if found is None or found.side != point.guarded:
        return None
    lines = [(frame.file, frame.line) for frame in sides[point.guarded]]
    at, under = (found.caller.file, found.caller.line), (point.file, point.line)
    below = at in lines and under in lines and lines.index(at) <= lines.index(under)
    return found if below else None


def _looked_up(sources: Sources, caller: Frame, function: str) -> ast.expr | None:
    """The one call at the line that finds its function by a key, or what one statement set the variable to that it
    calls; None where the line names it, and for an object or a class that is called."""
    tree = sources.function(caller.file, caller.line) if not is_library(caller) else None
    calls = [n for n in walk(tree) if isinstance(n, ast.Call) and holds(n, caller.line)] if tree is not None else []
    hidden = function.startswith(("<", "__"))
    if tree is None or hidden or any(last_name(each.func) == function for each in calls):
        return None
    here = enclosing_function(tree, caller.line)
    found = [each for each in calls if _is_lookup(each.func) or _looked_up_before(here, each.func)]
    before = _looked_up_before(here, found[0].func) if len(found) == 1 else []
    return before[0] if len(before) == 1 else found[0] if len(found) == 1 else None


def _is_lookup(value: ast.expr | None) -> bool:
    """True for `TABLE[key]`, `TABLE.get(key)` and `getattr(owner, name)`."""
    if isinstance(value, ast.Call):
        return last_name(value.func) in ("getattr", "get") and bool(value.args)
    return isinstance(value, ast.Subscript)


def _looked_up_before(here: ast.AST, function: ast.expr) -> list[ast.expr]:
    """What the called variable was set to, where that is a look-up each time."""
    values = [*set_to(here, function.id).values()] if isinstance(function, ast.Name) else []
    found = [value for value in values if value is not None and _is_lookup(value)]
    return found if len(found) == len(values) else []
