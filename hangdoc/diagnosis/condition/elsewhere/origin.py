"""The loop whose items choose the group of a call, and what decides their order.

Example: ranks use the groups in another order, and

    50  for bucket in self.buckets:
    51      bucket.flush()         # all_reduce(x, group=self.group)

→ the loop at line 50, and where `self.buckets` is set. Of what several lines set, the conditions that they are under
say more.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from hangdoc.diagnosis.bounds import DEEPEST, NAMED
from hangdoc.diagnosis.condition.elsewhere.as_called import expression_given, given_by_caller
from hangdoc.diagnosis.frames.names import is_rank_name, names, pattern
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import Guard, guards
from hangdoc.diagnosis.source.queries import group_expression
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import (
    dotted,
    enclosing_function,
    function_name,
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


def _followed(sources: Sources, way: Sequence[Frame], name: str) -> list[Condition]:
    """What sets the name of the innermost frame or changes its items, there or under the callers' names for it."""
    for level, frame in enumerate(way[:DEEPEST]):
        tree = sources.function(frame.file, frame.line)
        if not name or tree is None:
            return []
        here = enclosing_function(tree, frame.line)
        setting = list(_that_set(here, partial(_is_called, name)))
        if setting:
            return _deciding(tree, frame.file, setting)
        caller = way[level + 1] if level + 1 < len(way) else None
        given = given_by_caller(sources, frame, caller, name) if caller is not None else ""
        made = expression_given(sources, frame, caller, name) if caller is not None and not given else None
        if caller is not None and isinstance(made, ast.Call | ast.IfExp):
            return [Condition(text_of(made), caller.file, made.lineno)]
        if not given and "." in name:
            attribute = name.rpartition(".")[2]
            return _attribute_set(sources, attribute) or _answered(sources, attribute)
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


def order_of_items(sources: Sources, chosen: ByItem) -> list[Condition]:
    """What decides the order of the items that the `for` goes over: the line that sets them, the conditions under which
    they are set, filled or put in order. [] where a function of the user's makes them: its answers say more.

    Example: `order = [a, b] ⏎ if b.full(): ⏎ order.reverse() ⏎ for each in order:` → `if b.full():`.
    """
    tree = sources.function(chosen.loop.file, chosen.loop.line)
    found = (n for n in walk(tree) if isinstance(n, ast.For | ast.AsyncFor)) if tree is not None else iter(())
    node = next((n for n in found if n.lineno == chosen.loop.line), None)
    over = node.iter if node is not None else None
    while isinstance(over, ast.Call):
        view = over.func.value if isinstance(over.func, ast.Attribute) and not over.args else None
        inner = over.args[0] if over.args and last_name(over.func) in names("wraps_items") else None
        if inner is None and (view is None or last_name(over.func) not in ("items", "keys", "values")):
            return []
        over = inner or view
    return _followed(sources, chosen.way, dotted(over) if over is not None else "")


def _attribute_set(sources: Sources, attribute: str) -> list[Condition]:
    """What decides how an attribute of that name is set, of whatever object, by other functions than `__init__`."""
    found: dict[tuple[str, int], list[Condition]] = {}
    for file, tree in sources.user_trees():
        for node in _that_set(tree, partial(_is_attribute, attribute)):
            if (file, node.lineno) not in found and function_name(tree, node.lineno) != "__init__":
                found[file, node.lineno] = _deciding(tree, file, [node], elsewhere=True)
    conditions = dict.fromkeys(each for some in found.values() for each in some)
    return list(conditions) if len(conditions) <= NAMED else []


def _answered(sources: Sources, attribute: str) -> list[Condition]:
    """The one `return` of a property of that name, where there is one such property."""
    found = [
        (file, each)
        for file, node in sources.user_definitions(attribute)
        if any(last_name(by).endswith("property") for by in node.decorator_list)
        for each in walk(node)
        if isinstance(each, ast.Return) and each.value is not None
    ]
    return [Condition(text_of(each), file, each.lineno) for file, each in found] if len(found) == 1 else []


def _is_called(name: str, node: ast.AST) -> bool:
    return dotted(node) == name


def _is_attribute(name: str, node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == name


def _that_set(tree: ast.AST, is_meant: Callable[[ast.AST], bool]) -> Iterator[_Setting]:
    for node in walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.For):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = [p for t in targets for p in (t.elts if isinstance(t, ast.Tuple | ast.List) else [t])]
            parts = [p.value if isinstance(p, ast.Subscript) else p for p in parts]
            if any(map(is_meant, parts)):
                yield node
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = node.value.func
            if isinstance(called, ast.Attribute) and called.attr in names("changes_order") and is_meant(called.value):
                yield node


def _deciding(tree: ast.AST, file: str, settings: list[_Setting], *, elsewhere: bool = False) -> list[Condition]:
    """The one line that sets it; the conditions that not all of several lines are under, and those of a line that is
    ``elsewhere`` and calls nothing. [] where nothing is told by them."""
    around = [{g.place: g for g in guards(tree, node.lineno) if _decides(g)} for node in settings]
    common = set.intersection(*(set(each) for each in around)) if len(around) > 1 else set()
    found = [next((g for place, g in reversed(each.items()) if place not in common), None) for each in around]
    conditions = dict.fromkeys(Condition(g.condition, file, g.line) for g in found if g is not None)
    only = settings[0]
    if len(settings) == 1 and not isinstance(only, ast.Expr):
        asks = isinstance(getattr(only, "value", None), ast.Call)
        if asks or not (elsewhere and conditions):
            return [_as_condition(only, file)]
    return list(conditions) if len(conditions) <= NAMED else []


def _decides(guard: Guard) -> bool:
    """False for a condition that is alike on all ranks, or differs from the beginning."""
    if guard.kind == "try":
        return guard.taken and guard.condition.startswith("except")
    alike = pattern("same_everywhere").search(guard.condition)
    for_all = [all(map(each, guard.names)) for each in (is_rank_name, pattern("job_setting").search)]
    return guard.kind in ("if", "match") and not (alike or (guard.names and any(for_all)))


def word_for(origin: list[Condition]) -> str:
    """What they do to it: conditions decide, other lines set."""
    decides = bool(origin) and origin[0].source.partition(" ")[0].rstrip(":") in ("if", "case", "except")
    return ("decide" if decides else "set") + ("s" if len(origin) == 1 else "")


def _as_condition(node: _Setting, file: str) -> Condition:
    if isinstance(node, ast.For):
        return Condition(f"for {target_text(node.target)} in {text_of(node.iter)}:", file, node.lineno)
    return Condition(text_of(node), file, node.lineno)
