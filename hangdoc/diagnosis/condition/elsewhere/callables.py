"""What a function sets a name to, from which it then calls it, or makes what it gives a library."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.source.syntax import dotted, walk


def set_to(here: ast.AST, name: str) -> dict[ast.AST, ast.expr | None]:
    """Statement → what it sets the name to; None for one of several values, and for what a loop or a sum sets."""
    found: dict[ast.AST, ast.expr | None] = {}
    for node in walk(here):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name | ast.Attribute) and dotted(target) == name for target in targets):
            whole = isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr)
            found[node] = getattr(node, "value", None) if whole else None
        elif any(isinstance(part, ast.Name) and part.id == name for t in targets for part in getattr(t, "elts", ())):
            found[node] = None
    return found
