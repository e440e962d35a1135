"""Where an argument of a collective comes from: the line that set it, in the function of the call or in a caller.

Example: ranks give different roots to the broadcast in adopt(), and

    90  def run(self):
    91      source = self.best(losses)
    92      self.adopt(source)
    …   def adopt(self, root):
    96          dist.broadcast(tensor, src=root)

→ `source = self.best(losses)` at line 91.
"""

from __future__ import annotations

import ast

from hangdoc.diagnosis.condition.as_called import given_by_caller
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, enclosing_function, holds, last_name, names_in, target_text, text_of
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame, Stack

_MOST_LEVELS = 4
"""Callers that an argument is followed through; chosen by hand."""


def set_at(sources: Sources, stack: Stack, op: str, what: str) -> Condition | None:
    """The line that set the ``what`` ('root' or 'arguments') of the call of ``op`` at the innermost user's frame.

    None for a constant, for what several lines set, and where the source of a step is not there.
    """
    way = list(user_stack(stack))  # innermost first
    tree = sources.function(way[0].file, way[0].line) if way else None
    if tree is None:
        return None
    argument = _argument(tree, way[0].line, op, what)
    tested = names_in(argument)
    name = dotted(argument) if argument is not None else ""
    name = name or (tested[0] if len(tested) == 1 else "")
    for level, frame in enumerate(way[:_MOST_LEVELS]):
        tree = sources.function(frame.file, frame.line)
        if not name or tree is None:
            return None
        setting = _setting(enclosing_function(tree, frame.line), name)
        if setting:
            return _as_condition(setting[0], frame) if len(setting) == 1 else None
        caller = way[level + 1] if level + 1 < len(way) else None
        name = given_by_caller(sources, frame, caller, name) if caller is not None else ""
    return None


def _argument(tree: ast.AST, line: int, op: str, what: str) -> ast.expr | None:
    """The expression that the call at that line gives for its root, or for its tensors."""
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and holds(n, line) and op in last_name(n.func)]
    if len(calls) != 1:
        return None
    if what != "root":
        return calls[0].args[0] if calls[0].args else None
    by_keyword = [k.value for k in calls[0].keywords if k.arg in names("root_local")]
    return by_keyword[0] if by_keyword else calls[0].args[1] if len(calls[0].args) > 1 else None


def _setting(function: ast.AST, name: str) -> list[ast.Assign | ast.AnnAssign | ast.AugAssign | ast.For]:
    """The statements of the function that set the name."""
    found: list[ast.Assign | ast.AnnAssign | ast.AugAssign | ast.For] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.For):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = [p for t in targets for p in (t.elts if isinstance(t, ast.Tuple | ast.List) else [t])]
            if any(dotted(part) == name for part in parts):
                found.append(node)
    return found


def _as_condition(node: ast.Assign | ast.AnnAssign | ast.AugAssign | ast.For, frame: Frame) -> Condition:
    if isinstance(node, ast.For):
        return Condition(f"for {target_text(node.target)} in {text_of(node.iter)}:", frame.file, node.lineno)
    return Condition(text_of(node), frame.file, node.lineno)
