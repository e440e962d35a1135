"""What decides, within a statement, whether a call in it is made: of `x and call()`, of `call() if x else None`."""

from __future__ import annotations

import ast
from typing import NamedTuple

from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.syntax import dotted, holds, last_name, target_text, text_of, walk


class Asked(NamedTuple):
    """A condition or loop in an expression, as a guard tells it (``guards.Guard``). ``test``: what it names."""

    kind: str
    node: ast.AST
    text: str
    taken: bool
    test: ast.AST
    counters: tuple[str, ...] = ()


def within_expression(statement: ast.AST, line: int, called: frozenset[str]) -> list[Asked]:
    """The conditions and loops inside a statement or test: `x and call()`, `call() if x else None`, `[call() for …]`.

    ``called``: names of the functions that are being called, if they are known.
    """
    calls = {n for n in walk(statement) if isinstance(n, ast.Call) and holds(n, line)}
    calls = {n for n in calls if not _only_hands_on(n)} or calls
    # If a name picks some of them, only the conditions around these count; else those around the name itself, which is
    # called later.
    chosen: set[ast.AST] = {n for n in calls if last_name(n.func) in called}
    chosen = chosen or {n for n in walk(statement) if isinstance(n, ast.Name) and n.id in called and holds(n, line)}
    reached = chosen or {*calls}
    found: list[Asked] = []
    asked: set[ast.AST] = set()
    for node in walk(statement):
        if isinstance(node, ast.IfExp):
            found += _around_arm(node, reached)
        elif isinstance(node, ast.BoolOp):
            found += _before_operand(node, reached)
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) and node not in asked:
            found += _in_comprehension(node, reached)
        elif isinstance(node, ast.Call) and (ends := _asked_of_each(node, reached)):
            found += ends
            asked.add(node.args[0])  # an answer ends it before its last item, which is not what it goes over
    return found


def _only_hands_on(call: ast.Call) -> bool:
    """True for a call that never communicates itself: `len(x)`, the `.item()` of `m.compute().item()`, the `.items()`
    that a comprehension goes over, `x.new_zeros(3)` beside `self.tower(x)`."""
    name = last_name(call.func)
    quiet = any(name in names(each) for each in ("gives_items", "reads_values", "makes_like"))
    return quiet or dotted(call.func) in names("makes_a_value")


def _asked_of_each(node: ast.Call, calls: set[ast.AST]) -> list[Asked]:
    """What ends `any(check(x) for x in xs)` before the last item: that it is True already; of `all`, that it is not."""
    each = node.args[0] if len(node.args) == 1 and dotted(node.func) in ("any", "all") else None
    if not isinstance(each, ast.GeneratorExp) or not calls or not calls <= set(walk(each.elt)):
        return []
    asked = dotted(node.func)
    return [Asked("expression", node, f"{asked}{text_of(each)}", asked == "all", each.elt)]


def _around_arm(node: ast.IfExp, calls: set[ast.AST]) -> list[Asked]:
    """The condition of `call() if x else None`; none where both arms call, so that either may be meant."""
    arms = [(taken, calls.isdisjoint(walk(arm))) for arm, taken in ((node.body, True), (node.orelse, False))]
    if not any(idle for _, idle in arms):
        return []
    text = f"if {text_of(node.test)}"
    return [Asked("expression", node, text, taken, node.test) for taken, idle in arms if not idle]


def _before_operand(node: ast.BoolOp, calls: set[ast.AST]) -> list[Asked]:
    """The operands before the call in `x and y and call()`, which decide whether it is evaluated."""
    at = next((i for i, value in enumerate(node.values) if not calls.isdisjoint(walk(value))), 0)
    if not at:
        return []
    before = node.values[0] if at == 1 else ast.BoolOp(node.op, node.values[:at])
    return [Asked("expression", node, text_of(before), isinstance(node.op, ast.And), before)]


def _in_comprehension(
    node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, calls: set[ast.AST]
) -> list[Asked]:
    """The loops and conditions that decide whether a comprehension's element is computed."""
    elements = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    if not calls <= {n for element in elements for n in walk(element)} or not calls:
        return []
    found = []
    for each in node.generators:
        if not each.ifs:  # a filter explains a missing element better than what it goes over
            counters = tuple(n.id for n in walk(each.target) if isinstance(n, ast.Name))
            text = f"for {target_text(each.target)} in {text_of(each.iter)}"
            found.append(Asked("loop", node, text, True, each.iter, counters))
        found += [Asked("expression", test, f"if {text_of(test)}", True, test) for test in each.ifs]
    return found
