"""What changes the name under which a line sets a key of the store."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.guards import CONDITIONS, Guard, guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function
from hangdoc.model.process import Frame


def renamed_before(sources: Sources, set_at: Frame) -> list[tuple[int, Guard]]:
    """(line, condition) of the statements that give the key another name before the line sets it, on some ways alone.

    Example: `key = self.key_of(agent) ⏎ if self.style: ⏎ key = key.lower() ⏎ self.store.set(key, address)` → the third
    line, and the `if`.
    """
    tree = sources.function(set_at.file, set_at.line)
    if tree is None:
        return []
    here = enclosing_function(tree, set_at.line)
    calls = (n for n in ast.walk(here) if isinstance(n, ast.Call) and n.lineno == set_at.line and n.args)
    keys = [n.args[0] for n in calls if isinstance(n.func, ast.Attribute) and n.func.attr in names("store_setter")]
    used = {n.id for key in keys for n in ast.walk(key) if isinstance(n, ast.Name)}
    around = {guard.place for guard in guards(tree, set_at.line)}
    found = []
    for node in ast.walk(here):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        named = {t.id for t in targets if isinstance(t, ast.Name)}
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and named & used and node.lineno < set_at.line:
            under = [g for g in guards(tree, node.lineno) if g.kind in CONDITIONS and g.place not in around]
            found += [(node.lineno, under[-1])] if under else []
    return found
