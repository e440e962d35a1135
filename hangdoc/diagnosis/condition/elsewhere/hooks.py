"""By what the user's hooks answer, where a library leaves out what follows for some answers.

Example: Lightning runs no backward for a batch for which training_step() gives None back,

    56  def training_step(self, batch, batch_idx):
    57      if not self.usable(batch):
    58          return None

→ `if not self.usable(batch):` at line 57.
"""

from __future__ import annotations

import ast

from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function, walk
from hangdoc.model.message import Condition

_MOST = 2
"""Conditions; more of them say nothing. Chosen by hand."""


def skipped_by_hook(sources: Sources) -> tuple[str, list[Condition]]:
    """(hook, the conditions under which it answers so); ('', []) where none does, and where there are too many to
    tell."""
    return _answering(sources, "skips_by_answer")


def _answering(sources: Sources, kind: str) -> tuple[str, list[Condition]]:
    for hook in names(kind):
        found: dict[Condition, None] = {}
        for file, function in sources.user_functions(hook):
            for node in walk(function):
                if not isinstance(node, ast.Return) or enclosing_function(function, node.lineno) is not function:
                    continue
                around = [g for g in guards(function, node.lineno) if g.kind == "if"] if _is_refusal(node.value) else []
                if around:
                    found[Condition(around[-1].condition, file, around[-1].line)] = None
        if 0 < len(found) <= _MOST:
            return hook, list(found)
    return "", []


def _is_refusal(value: ast.expr | None) -> bool:
    """True for `return`, `return None` and `return -1`."""
    return value is None or ast.unparse(value) in ("None", "-1")
