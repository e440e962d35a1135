"""What a condition in a called function tests, by the names that its callers have for it.

Of a function that only one side is in, the other side shows no values. But what the function was given, its callers
have as well, and both sides are in one of these. Example, with the others past line 2 in train():

    1  def train(board):
    2      board.write(step)          # board.write() reads `enabled`: True on rank 0, False on the others
    …  def write(self, step):
    9      if not self.enabled:       # self.enabled is board.enabled
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hangdoc.diagnosis.bounds import DEEPEST
from hangdoc.diagnosis.condition.stack_comparison import Callees
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.source.guards import Guard, guards
from hangdoc.diagnosis.source.queries import assignments
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, enclosing_function, holds, last_name, walk
from hangdoc.diagnosis.source.values import SideRanks, Values, sides_differ
from hangdoc.model.process import Frame, Stack

_OF_OBJECT = "__call__"


@dataclass(frozen=True, slots=True)
class _Given:
    """A name of a called function, by its caller's name for it at ``frame``; '' for a constant."""

    frame: Frame
    name: str
    method: str = ""
    """The method whose ``self`` it is an attribute of, as the probe shows what that method reads."""
    attribute: str = ""

    @property
    def shown_as(self) -> tuple[str, ...]:
        """The names under which the values of the caller's frame may show it."""
        rest = f".{self.attribute}" if self.attribute else ""
        own = (f"{self.name}.{self.method}(){rest}",) if self.method and rest else ()
        return (f"{self.name}{rest}", *own)


def values_as_called(
    sources: Sources, values: Values, guard: Guard, way: Stack, level: int, callees: Callees, ranks: SideRanks
) -> dict[str, dict[int, str]]:
    """Name → rank → value that the guard in ``way[level]`` tested, as the callers of that function show it, for each
    name whose values both sides show there. ``way``: outermost first.

    Of what counts the rounds of a loop around the call, and of a constant, nothing is shown but that it is alike: rank
    → '' on all ranks.
    """
    found: dict[str, dict[int, str]] = {}
    for name in guard.names:
        for given in _followed(sources, way, level, callees, name, guard.line):
            seen = _seen_alike(sources, values, given, guard, ranks)
            if seen is not None:
                found[name] = seen
                break
    return found


def _seen_alike(
    sources: Sources, values: Values, given: _Given, guard: Guard, ranks: SideRanks
) -> dict[int, str] | None:
    """Rank → value; None where a side does not show it."""
    tree = sources.function(given.frame.file, given.frame.line)
    around = guards(tree, given.frame.line) if tree is not None else []
    alike = not given.name or (not given.attribute and any(given.name in g.rounds for g in around))
    if alike:
        return {rank: "" for side in ranks for rank in side}
    at = replace(guard, line=given.frame.line)
    for name in given.shown_as:
        seen = values.tested(sources, given.frame.file, given.frame.function, at, name)
        if sides_differ(seen, ranks) is not None:
            return seen
    return None


def _followed(sources: Sources, way: Stack, level: int, callees: Callees, name: str, line: int) -> Iterator[_Given]:
    """What each caller in turn has for the name, the nearest first."""
    for at in range(level, max(0, level - DEEPEST), -1):
        frame, caller = way[at], way[at - 1]
        _, inner = callees.get(id(caller), (frozenset(), None))
        given = _given(sources, frame, caller, name, line) if inner is frame else None
        if given is None:
            return
        yield given
        if not given.name:
            return
        name, line = given.shown_as[0], caller.line


def given_by_caller(sources: Sources, frame: Frame, caller: Frame, name: str) -> str:
    """The caller's name for what the function of ``frame`` calls ``name``; '' for a constant, or for what it makes."""
    given = _given(sources, frame, caller, name, frame.line)
    return given.shown_as[0] if given is not None and given.name else ""


def expression_given(sources: Sources, frame: Frame, caller: Frame, name: str) -> ast.expr | None:
    """What the caller gives for the parameter of that name of the function of ``frame``; of `self`, the object that it
    calls the method of; None for what is none."""
    tree, outer = (sources.function(f.file, f.line) for f in (frame, caller))
    function = enclosing_function(tree, frame.line) if tree is not None else None
    if outer is None or not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    call = _call_of(outer, caller.line, plain(frame.function))
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    method = bool(names) and names[0] in ("self", "cls")
    if call is not None and method and name == names[0]:
        return _owner_of(call, plain(frame.function))
    return _argument(call, names[1:] if method else names, name) if call is not None else None


def _given(sources: Sources, frame: Frame, caller: Frame, name: str, line: int) -> _Given | None:
    """The caller's name for the called function's ``name``; None where it does not come from there unchanged."""
    tree, outer = (sources.function(f.file, f.line) for f in (frame, caller))
    function = enclosing_function(tree, frame.line) if tree is not None else None
    if outer is None or not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    call = _call_of(outer, caller.line, plain(frame.function))
    head, _, rest = name.partition(".")
    if call is None or any(at < line for at in assignments(function, head)):
        return None
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    method = bool(names) and names[0] in ("self", "cls")
    if method and head == names[0]:
        called_on = _owner_of(call, plain(frame.function))
        owner = dotted(called_on) if called_on is not None else ""
        changed = {*assignments(function, name)} if rest else ()
        return _Given(caller, owner, plain(frame.function), rest) if owner and not changed else None
    argument = _argument(call, names[1:] if method else names, head)
    if argument is None:
        return None
    if isinstance(argument, ast.Constant):
        return _Given(caller, "") if not rest else None
    return _Given(caller, dotted(argument), "", rest) if dotted(argument) else None


def _call_of(tree: ast.AST, line: int, function: str) -> ast.Call | None:
    """The one call of the function at the line; of an object's `__call__`, the only call there."""
    found = [
        node
        for node in walk(tree)
        if isinstance(node, ast.Call)
        and holds(node, line)
        and (last_name(node.func) == function or function == _OF_OBJECT)
    ]
    return found[0] if len(found) == 1 else None


def _owner_of(call: ast.Call, function: str) -> ast.expr | None:
    """The object whose method it is: `board` of `board.write(3)`, and of `board(3)`, which runs `__call__`."""
    if function == _OF_OBJECT and last_name(call.func) != _OF_OBJECT:
        return call.func
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def _argument(call: ast.Call, names: list[str], name: str) -> ast.expr | None:
    """What the call gives for the parameter of that name."""
    if any(isinstance(each, ast.Starred) for each in call.args) or name not in (
        *names,
        *(k.arg for k in call.keywords),
    ):
        return None
    keyword = next((k.value for k in call.keywords if k.arg == name), None)
    at = names.index(name) if name in names else len(call.args)
    return keyword or (call.args[at] if at < len(call.args) else None)
