"""Where what a call is given comes from: the line that set it, in the function of the call, in a caller, or of an
attribute in any function; the loop whose items choose it, and what decides their order.

Example: ranks give different roots to the broadcast in adopt(), and

    90  def run(self):
    91      source = self.best(losses)
    92      self.adopt(source)
    …   def adopt(self, root):
    96          dist.broadcast(tensor, src=root)

→ `source = self.best(losses)` at line 91. Of what several lines set, the conditions that they are under say more.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from hangdoc.diagnosis.bounds import DEEPEST
from hangdoc.diagnosis.condition.elsewhere.as_called import expression_given, given_by_caller
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.queries import group_expression
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import (
    dotted,
    enclosing_function,
    holds,
    last_name,
    names_in,
    target_text,
    text_of,
    walk,
)
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame, Stack

_Setting = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.For | ast.Expr


@dataclass(frozen=True, slots=True)
class ByItem:
    """``group``: the group as the call is given it; ``loop``: the `for` whose items choose it; ``way``: the user's
    frames from that of the loop on, innermost first."""

    group: str
    loop: Condition
    way: Stack


def set_at(sources: Sources, stack: Stack, op: str, what: str) -> list[Condition]:
    """What sets the ``what`` ('root' or 'arguments') of the call of ``op`` at the innermost user's frame: the one line
    that does, or the conditions that several lines, or a line elsewhere, are under.

    [] for a constant, and where the source of a step is not there.
    """
    way = list(user_stack(stack))  # innermost first
    tree = sources.function(way[0].file, way[0].line) if way else None
    if tree is None:
        return []
    argument = _argument(tree, way[0].line, op, what)
    tested = names_in(argument)
    name = dotted(argument) if argument is not None else ""
    if isinstance(argument, ast.IfExp) or (isinstance(argument, ast.Call) and what == "root"):
        return [Condition(text_of(argument), way[0].file, argument.lineno)]
    name = name or (tested[0] if len(tested) == 1 else "")
    return _followed(sources, way, name)


def _followed(sources: Sources, way: Sequence[Frame], name: str, *, changing: bool = False) -> list[Condition]:
    """What sets the name of the innermost frame, there or under the callers' names for it; ``changing``: or changes its
    items."""
    for level, frame in enumerate(way[:DEEPEST]):
        tree = sources.function(frame.file, frame.line)
        if not name or tree is None:
            return []
        here = enclosing_function(tree, frame.line)
        setting = list(_that_set(here, partial(_is_called, name), changing))
        if setting:
            return _deciding(frame.file, setting)
        caller = way[level + 1] if level + 1 < len(way) else None
        given = given_by_caller(sources, frame, caller, name) if caller is not None else ""
        made = expression_given(sources, frame, caller, name) if caller is not None and not given else None
        if caller is not None and isinstance(made, ast.Call | ast.IfExp):
            return [Condition(text_of(made), caller.file, made.lineno)]
        if not given and "." in name:
            return []
        name = given
    return []


def chosen_by_item(sources: Sources, stack: Stack) -> ByItem | None:
    """The loop whose items choose the group of the innermost user's call, in its function or in a caller's; None where
    none does.

    Example: `for bucket in self.plan(): ⏎ bucket.flush()`, and flush() calls `all_reduce(x, group=self.group)`.
    """
    way = list(user_stack(stack))
    tree = sources.function(way[0].file, way[0].line) if way else None
    given = group_expression(tree, way[0].line) if tree is not None else None
    known = set(names_in(given))
    for level, frame in enumerate(way[:DEEPEST]):
        tree = sources.function(frame.file, frame.line)
        if tree is None or not known:
            return None
        here = enclosing_function(tree, frame.line)
        loops = [n for n in walk(here) if isinstance(n, ast.For | ast.AsyncFor) and holds(n, frame.line)]
        heads = {name.partition(".")[0] for name in known}
        for loop in sorted(loops, key=lambda n: n.lineno, reverse=True):
            if heads & {n.id for n in walk(loop.target) if isinstance(n, ast.Name)}:
                header = f"for {target_text(loop.target)} in {text_of(loop.iter)}:"
                return ByItem(text_of(given), Condition(header, frame.file, loop.lineno), tuple(way[level:]))
        caller = way[level + 1] if level + 1 < len(way) else None
        given_there = [expression_given(sources, frame, caller, head) for head in heads] if caller is not None else []
        known = {name for each in given_there for name in names_in(each)}
    return None


def _argument(tree: ast.AST, line: int, op: str, what: str) -> ast.expr | None:
    """The expression that the call at that line gives for its root, or for its tensors."""
    there = [n for n in walk(tree) if isinstance(n, ast.Call) and holds(n, line)]
    calls = [n for n in there if op in last_name(n.func)] or list(there)
    calls = [n for n in calls if op in last_name(n.func)]
    if len(calls) != 1:
        return None
    if what != "root":
        return calls[0].args[0] if calls[0].args else None
    by_keyword = [k.value for k in calls[0].keywords if k.arg in names("root_local")]
    return by_keyword[0] if by_keyword else calls[0].args[1] if len(calls[0].args) > 1 else None


def _is_called(name: str, node: ast.AST) -> bool:
    return dotted(node) == name


def _that_set(tree: ast.AST, is_meant: Callable[[ast.AST], bool], changing: bool) -> Iterator[_Setting]:
    for node in walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.For):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = [p for t in targets for p in (t.elts if isinstance(t, ast.Tuple | ast.List) else [t])]
            if changing:
                parts = [p.value if isinstance(p, ast.Subscript) else p for p in parts]
            if any(map(is_meant, parts)):
                yield node
        elif changing and isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = node.value.func
            if isinstance(called, ast.Attribute) and called.attr in names("changes_order") and is_meant(called.value):
                yield node


def _deciding(file: str, settings: list[_Setting]) -> list[Condition]:
    """The one line that sets it, where that calls something or sets it by itself; [] where several may."""
    only = settings[0]
    return [_as_condition(only, file)] if len(settings) == 1 and not isinstance(only, ast.Expr) else []


def word_for(origin: list[Condition]) -> str:
    """What they do to it: conditions decide, other lines set."""
    decides = bool(origin) and origin[0].source.partition(" ")[0].rstrip(":") in ("if", "case", "except")
    return ("decide" if decides else "set") + ("s" if len(origin) == 1 else "")


def _as_condition(node: _Setting, file: str) -> Condition:
    if isinstance(node, ast.For):
        return Condition(f"for {target_text(node.target)} in {text_of(node.iter)}:", file, node.lineno)
    return Condition(text_of(node), file, node.lineno)
