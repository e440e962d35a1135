"""What a loop's items are called, in the loop and in the functions that it hands them to.

Example: of `for i, batch in enumerate(loader): ⏎ x = batch.cuda() ⏎ self.step(x)` and `def step(self, images):` →
'batch' and 'x' in the loop, 'images' in step(); `i` counts the rounds and is no item.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hangdoc.diagnosis.bounds import DEEPEST, TRIED
from hangdoc.diagnosis.source.guards import Guard
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import LOOPS, enclosing_function, holds, last_name, walk


def names_of_items(sources: Sources, tree: ast.AST, loop: Guard, function: str) -> set[str]:
    """The names that hold an item of the loop, or what was made of one, in the function of that name; in the loop's own
    function, where it is ''."""
    here = enclosing_function(tree, loop.line)
    items = _made_of(here, _items_of(tree, loop))
    if not function:
        return items
    read = [(here, items)]
    for _ in range(DEEPEST):
        handed = [each for node, held in read for each in _handed_on(sources, node, held)][:TRIED]
        read = [(node, _made_of(node, held)) for node, held in handed]
        found = [held for node, held in read if getattr(node, "name", "") == function]
        if found:
            return found[0]
    return set()


def items_of_ended_loops(function: ast.AST, line: int) -> set[str]:
    """What the `for` loops of the function assign that are not around the line: there it is of their last round.

    Example: of `for peer in peers: ⏎ … ⏎ for work in works: ⏎ work.wait()`, at the last line → 'peer'.
    """
    loops = [node for node in walk(function) if isinstance(node, ast.For | ast.AsyncFor)]
    around = {name for loop in loops if holds(loop, line) for name in _names(loop.target)}
    return {name for loop in loops for name in _names(loop.target)} - around


def _items_of(tree: ast.AST, loop: Guard) -> set[str]:
    """What a `for` assigns, but for what counts its rounds; of a `while`, what its body gets from a call."""
    node = next((n for n in walk(tree) if isinstance(n, LOOPS) and n.lineno == loop.line), None)
    if isinstance(node, ast.While):
        return {name for target, value in _sets(node) if isinstance(value, ast.Call) for name in _names(target)}
    return _names(node.target) - set(loop.rounds) if node is not None else set()


def _made_of(function: ast.AST, items: set[str]) -> set[str]:
    """The items, and the names that are set to what is made of them."""
    found = set(items)
    for target, value in _sets(function):
        if not found.isdisjoint(_names(value)):
            found |= _names(target)
    return found


def _sets(node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """(target, value) of each assignment to names, in the order of the source."""
    found = [(target, each.value) for each in walk(node) if isinstance(each, ast.Assign) for target in each.targets]
    found += [(each.target, each.value) for each in walk(node) if isinstance(each, ast.NamedExpr)]
    plain = [(target, value) for target, value in found if isinstance(target, ast.Name | ast.Tuple)]
    return sorted(plain, key=lambda each: each[1].lineno)


def _handed_on(sources: Sources, node: ast.AST, items: set[str]) -> Iterator[tuple[ast.FunctionDef, set[str]]]:
    """(function, its names for the items) of each of the program's functions that is called with some of them."""
    for call in (each for each in walk(node) if isinstance(each, ast.Call)):
        given = [not items.isdisjoint(_names(each)) for each in call.args]
        named = {each.arg for each in call.keywords if each.arg and not items.isdisjoint(_names(each.value))}
        own = isinstance(call.func, ast.Attribute) and not items.isdisjoint(_names(call.func.value))
        if own or named or any(given):
            for _, function in sources.user_functions(last_name(call.func)):
                names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
                first = names[:1] if names[:1] in (["self"], ["cls"]) else []
                got = {name for name, is_item in zip(names[len(first) :], given, strict=False) if is_item}
                yield function, got | named | ({*first} if own else set())


def _names(node: ast.AST) -> set[str]:
    """The names in an expression, without attributes."""
    return {each.id for each in walk(node) if isinstance(each, ast.Name)}
