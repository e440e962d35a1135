"""The conditions by which some parts of the model have a share in a loss and others not: those parts alone get
gradients.

Example: of `loss.backward()` after `loss = total(model(x), batch)`, where

    73  def total(outputs, batch):
    74      parts = {name: f(outputs[name], batch[name]) for name, f in LOSSES if name in batch}
    75      return sum(parts.values())

→ `if name in batch`, and then what puts a name into the batch, `if has_depth:` around `batch["depth"] = …`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hangdoc.diagnosis.condition.elsewhere.set_before import set_by
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.settings import Place, place_of
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import holds, walk
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame

_MOST = 2
"""Conditions; of more, those further from the loss say little. Chosen by hand."""


def conditions_in_loss(sources: Sources, frame: Frame | None) -> list[Condition]:
    """The user's conditions that choose what the loss is made of, the nearest to it first. ``frame``: the line that
    runs the backward, or a trainer that asks the program for the loss."""
    at = place_of(sources, frame.file, frame.line) if frame is not None else None
    if at is None or frame is None:
        return []
    losses = list(_losses_at(at, frame.line)) or [_asked_of(hook) for hook in names("gives_the_loss")]
    told = (test for loss in losses for answer in set_by(sources, at, loss) for test in answer.tests)
    return [each for each in dict.fromkeys(told) if _chooses_parts(sources, each)][:_MOST]


def _losses_at(at: Place, line: int) -> Iterator[ast.expr]:
    """What backward() is called on, or given: `loss` of `scaler.scale(loss / 4).backward()`, of `engine.backward(loss)`
    and of `loss.mean().backward()`."""
    calls = (node for node in walk(at.tree) if isinstance(node, ast.Call) and holds(node, line))
    for call in calls:
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in names("called_on_loss"):
            continue
        waiting = [*(call.args[:1] or [call.func.value])]
        while waiting:
            loss = waiting.pop(0)
            yield loss
            if isinstance(loss, ast.Call):
                waiting += [*([loss.func.value] if isinstance(loss.func, ast.Attribute) else []), *loss.args]


def _asked_of(hook: str) -> ast.expr:
    """`program.compute_loss()`: a trainer asks a method."""
    return ast.Call(ast.Attribute(ast.Name("program"), hook), [], [])


def _chooses_parts(sources: Sources, condition: Condition) -> bool:
    """True where the condition decides what is computed or left out, and not only a number: `2.0 if hard else 1.0`."""
    tree = sources.function(condition.file, condition.line)
    for node in walk(tree) if tree is not None else ():
        if isinstance(node, ast.match_case | ast.comprehension):
            first = node.pattern if isinstance(node, ast.match_case) else next(iter(node.ifs), None)
            if first is not None and holds(first, condition.line):
                return True
        if not isinstance(node, ast.If | ast.IfExp) or not holds(node.test, condition.line):
            continue
        arms = [node.body, node.orelse] if isinstance(node, ast.IfExp) else [*node.body, *node.orelse]
        if any(map(_computes, arms)):
            return True
    return False


def _computes(arm: ast.AST) -> bool:
    """True for what goes by more than constants, and for what leaves."""
    leaves = (ast.Return, ast.Continue, ast.Break)
    return any(
        isinstance(each, leaves)
        or (isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load) and not each.id.isupper())
        for each in walk(arm)
    )
