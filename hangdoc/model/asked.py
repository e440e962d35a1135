"""The functions that conditions ask, or that raise what a handler catches, and the tests by which these answer: one
rule for what capture keeps and diagnosis says.

Example: `if self.guard.spiked(step):` asks `spiked`, which answers by `if loss > self.limit: ⏎ return True`.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PROPERTIES = ("property", "cached_property")


def tests_in(tree: ast.AST) -> Iterator[ast.expr]:
    """What `if`, `while`, `match` and expressions test, wherever in the tree; and the calls whose result gets a name,
    is gone over or is given to a call, as that may be tested, or be given to a collective."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            yield node.test
        elif isinstance(node, ast.Match):
            yield node.subject
        elif isinstance(node, ast.BoolOp):
            yield from node.values[:-1]
        elif isinstance(node, ast.comprehension):
            yield from node.ifs
        elif isinstance(node, ast.Assign | ast.NamedExpr) and isinstance(node.value, ast.Call):
            yield node.value
        elif isinstance(node, ast.For) and isinstance(node.iter, ast.Call):
            yield from (each for each in (node.iter, *node.iter.args) if isinstance(each, ast.Call))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            given = (*node.value.args, *(each.value for each in node.value.keywords))
            yield from (each for each in given if isinstance(each, ast.Call))


_PAST = ("new_group", "new_subgroups", "Thread", "submit", "start_new_thread", "run_in_executor")
"""Calls of torch 2.13 and Python 3.11 that make a group or start a thread."""


def tells_of_the_past(function: ast.AST) -> bool:
    """True for a function that makes groups, starts threads, sets a key of a store, or raises or sets an attribute
    under a condition: what some ranks did in there, and others not, no stack shows later."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            sets_key = isinstance(node.func, ast.Attribute) and node.func.attr == "set" and len(node.args) == 2
            if sets_key or _last_name(node.func) in _PAST:
                return True
        if isinstance(node, ast.If) and any(isinstance(each, ast.Raise) or _sets_attribute(each) for each in node.body):
            return True
    return False


def _sets_attribute(node: ast.stmt) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(each, ast.Attribute) for each in targets)


def asked_by(test: ast.AST) -> dict[str, bool]:
    """Last name → whether it is called, of the calls and attributes whose truth decides a test.

    Example: `not self.guard.fits(batch) and self.done` → {'fits': True, 'done': False}; `loss() < best` → {}.
    """
    if isinstance(test, ast.BoolOp):
        return {name: called for value in test.values for name, called in asked_by(value).items()}
    if isinstance(test, ast.UnaryOp):
        return asked_by(test.operand)
    if isinstance(test, ast.NamedExpr):
        return asked_by(test.value)
    if isinstance(test, ast.Compare):
        return asked_by(test.left) if all(map(is_constant, test.comparators)) else {}
    if isinstance(test, ast.Call):
        name = _last_name(test.func)
        each = test.args[0] if name in ("any", "all") and len(test.args) == 1 else None
        return asked_by(each.elt) if isinstance(each, ast.GeneratorExp | ast.ListComp) else {name: True}
    return {test.attr: False} if isinstance(test, ast.Attribute) else {}


def may_throw(tree: ast.AST) -> tuple[set[str], set[str]]:
    """(exceptions of the program's own that handlers in the tree catch, functions that the bodies call of a `try` that
    catches one of Python's).

    Example: `try: ⏎ run(x) ⏎ except (Pruned, OSError): …` → ({'Pruned'}, {'run'}).
    """
    own: set[str] = set()
    called: set[str] = set()
    for node in ast.walk(tree):
        caught = {name for h in node.handlers for name in caught_by(h)} if isinstance(node, ast.Try) else set()
        own |= {name for name in caught if not hasattr(builtins, name)}
        if isinstance(node, ast.Try) and any(hasattr(builtins, name) for name in caught):
            calls = (n for each in node.body for n in ast.walk(each) if isinstance(n, ast.Call))
            called |= {_last_name(call.func) for call in calls}
    return own, called


def caught_by(handler: ast.ExceptHandler) -> set[str]:
    """The last names of the exceptions; none of a bare `except:`, which says nothing of what is raised."""
    if handler.type is None:
        return set()
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {_last_name(each) for each in types}


def raised_in(function: ast.AST) -> set[str]:
    """The last names of the exceptions that the function raises."""
    raised = (node.exc for node in ast.walk(function) if isinstance(node, ast.Raise) and node.exc is not None)
    return {_last_name(each.func if isinstance(each, ast.Call) else each) for each in raised}


def is_constant(node: ast.expr) -> bool:
    """True for a literal, and for what is named like a constant or a member of an enumeration: `Action.EVALUATE`."""
    return isinstance(node, ast.Constant) or _last_name(node).isupper()


def answers_to(function: ast.AST, *, called: bool) -> bool:
    """True for a function where the name is called, and for a property where it is only read."""
    if not isinstance(function, _FUNCTIONS):
        return False
    is_property = any(_last_name(each) in _PROPERTIES for each in function.decorator_list)
    return is_property != called


def can_be_method(function: ast.AST, called: ast.AST) -> bool:
    """False for a plain function where what is called is a method of an attribute of an object, and for a method where
    it is a bare name: `self.table.get(key)` does not run `def get(source):`, nor `any(votes)` `def any(self, vote):`.
    """
    arguments = getattr(function, "args", None)
    first = arguments.args[0].arg if isinstance(arguments, ast.arguments) and arguments.args else ""
    if isinstance(called, ast.Name):
        return first not in ("self", "cls")
    held = called.value if isinstance(called, ast.Attribute) else None
    while isinstance(held, ast.Attribute) and isinstance(held.value, ast.Attribute):
        held = held.value
    if not isinstance(held, ast.Attribute) or getattr(held.value, "id", "") != "self":
        return True
    return first in ("self", "cls") or bool(getattr(function, "decorator_list", ()))


def _last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
