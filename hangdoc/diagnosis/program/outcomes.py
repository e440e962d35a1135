"""Which outcome goes with which: of the operands of a test, and of what gave the tested name its value."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.program.accesses import Write
from hangdoc.diagnosis.program.graph import Test
from hangdoc.diagnosis.program.pieces import last_name

ROUNDS = ("round", "ended")
"""What a loop may be asked for: how many items there are, and not which."""
_HANDED_ON = frozenset(("enumerate", "zip", "iter", "list", "tuple", "sorted", "reversed", "tqdm"))
_OPPOSITE = {"True": "False", "False": "True", "round": "ended", "raised": "ended"}


def opposite(test: Test, outcome: str) -> str:
    """The other outcome of the test. Example: of a loop, 'ended' → 'round'."""
    if outcome == "ended":
        return "round" if test.is_loop else "raised"
    return _OPPOSITE.get(outcome, "")


def without_not(test: ast.AST, outcome: str) -> tuple[ast.AST, str]:
    """The expression that is tested, and what it was. Example: `not stale`, 'True' → `stale`, 'False'."""
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, outcome = test.operand, _OPPOSITE.get(outcome, "")
    return test, outcome


def operands(test: ast.AST, outcome: str) -> tuple[list[ast.expr], str]:
    """(the operands of `and` or `or`, what each of them was): where `a and b` was False, it is open which was."""
    inner, was = without_not(test, outcome)
    if not isinstance(inner, ast.BoolOp):
        return [], ""
    return inner.values, was if was == ("True" if isinstance(inner.op, ast.And) else "False") else ""


def gone_through(expression: ast.AST) -> list[ast.expr]:
    """What is gone through with it, item by item: `loader` of `enumerate(loader)`."""
    if isinstance(expression, ast.Call) and last_name(expression.func) in _HANDED_ON:
        return expression.args
    return []


def is_one_item(write: Write) -> bool:
    """True if it gives whoever goes through the container one more round, whatever the item is: `yield batch`,
    `jobs.append(x)`."""
    if write.kind == "filled":
        return isinstance(write.node, ast.Call) and last_name(write.node.func) not in ("extend", "extendleft", "update")
    yields = isinstance(write.node, ast.Expr | ast.Assign) and isinstance(write.node.value, ast.Yield)
    return write.kind == "returned" and yields


def is_against(write: Write, wanted: str) -> bool:
    """True if what is written is not what was read: so it is the other way, past the write, that led there.

    ``wanted``: the truth of the value read, 'round' or 'ended' of one that is gone through, '' where it is not known.
    Examples: `stale = True` and 'False'; `jobs.append(x)` and 'False'; `jobs.pop()` and 'True'.
    """
    if write.kind in ("filled", "taken"):
        full = {"True": True, "round": True, "False": False}.get(wanted)
        return full is not None and full is (write.kind == "taken")
    if not isinstance(write.value, ast.Constant):
        return False
    return wanted == ("False" if write.value.value else "True")
