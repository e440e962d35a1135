"""The conditions of a library's own code on the way from the user's line down to the call, which the other side may
have taken differently.

Example: `self.scaler.step(self.optimizer)` of the user's calls, in torch's grad_scaler.py,

    371  if not sum(v.item() for v in optimizer_state["found_inf_per_device"].values()):
    372      retval = optimizer.step(*args, **kwargs)

and the optimizer communicates. A rank whose gradients overflowed is past the user's line, without that call → line 371.
What asks for types, options or the rank is the same in every round, and no reason.
"""

from __future__ import annotations

import ast
from itertools import takewhile

from hangdoc.diagnosis.bounds import NAMED
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.names import is_rank_name, names, pattern
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.queries import raises
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, last_name, names_in, text_of, walk
from hangdoc.model.asked import is_constant
from hangdoc.model.message import Condition
from hangdoc.model.process import Stack

_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)


def conditions_in_library(sources: Sources, stack: Stack, *, of_values: bool = False) -> list[Condition]:
    """Those that test data, or what the library counts, the nearest to the call first; [] where none was read.

    The other side came out without an exception: a condition that raises one is none of them. ``of_values``: only what
    asks for the values in a tensor, as for gradients that are finite.
    """
    found: dict[Condition, None] = {}
    for frame in takewhile(is_library, stack):
        tree = sources.function(frame.file, frame.line)
        for guard in reversed(guards(tree, frame.line)) if tree is not None else ():
            raising = tree is not None and raises(tree, guard.line)
            told = not of_values or pattern("asks_for_values").search(guard.condition)
            if guard.kind in CONDITIONS and told and not raising and _tests_data(_parsed(guard.condition)):
                found.setdefault(Condition(guard.condition, frame.file, guard.line))
    return list(found)[:NAMED]


def _parsed(condition: str) -> ast.expr | None:
    """The test of `if loss > 3:`; None where it was too long to be told in full."""
    try:
        return ast.parse(condition.removeprefix("if ").removesuffix(":"), mode="eval").body
    except SyntaxError:
        return None


def _tests_data(test: ast.expr | None) -> bool:
    """True if some operand of the test goes by data or by a count.

    Examples: `not sum(found.values())`, `step % n == 0`, `state.sync_gradients` → True; `closure is not None`,
    `isinstance(x, Tensor)`, `self.overlap` → False.
    """
    if test is None or any(isinstance(n, ast.Call) and last_name(n.func) in names("asks_for_type") for n in walk(test)):
        return False
    if isinstance(test, ast.BoolOp):  # of set-up and data together, as `sync and distributed`, all is set up alike
        set_up = any(pattern("same_everywhere").search(text_of(each)) for each in test.values)
        return not set_up and any(map(_tests_data, test.values))
    if isinstance(test, ast.UnaryOp):
        return _tests_data(test.operand)
    if pattern("same_everywhere").search(text_of(test)) or any(map(is_rank_name, names_in(test))):
        return False
    if isinstance(test, ast.Compare):
        sides = [test.left, *test.comparators]
        ordered = all(isinstance(each, _ORDERS) for each in test.ops)
        return ordered and not any(_is_choice(each) for each in sides) and not all(map(is_constant, sides))
    if isinstance(test, ast.Call):
        return dotted(test.func) != "" and not pattern("setup").search(last_name(test.func))
    return isinstance(test, ast.Name | ast.Attribute) and bool(pattern("state_flag").search(last_name(test)))


def _is_choice(value: ast.expr) -> bool:
    """True for what options and kinds are compared with: a text, a member of an enumeration, a class, a number of
    dimensions."""
    if isinstance(value, ast.Constant):
        return isinstance(value.value, str | bytes) or value.value is None
    name = last_name(value)
    return is_constant(value) or name.lstrip("_")[:1].isupper() or name in names("asks_for_type")
