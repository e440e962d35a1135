"""What changes the name under which a line sets a key of the store."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.guards import CONDITIONS, Guard, guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function, walk
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
    calls = (n for n in walk(here) if isinstance(n, ast.Call) and n.lineno == set_at.line and n.args)
    keys = [n.args[0] for n in calls if isinstance(n.func, ast.Attribute) and n.func.attr in names("store_setter")]
    used = {n.id for key in keys for n in walk(key) if isinstance(n, ast.Name)}
    around = {guard.place for guard in guards(tree, set_at.line)}
    found = []
    for node in walk(here):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        named = {t.id for t in targets if isinstance(t, ast.Name)}
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and named & used and node.lineno < set_at.line:
            under = [g for g in guards(tree, node.lineno) if g.kind in CONDITIONS and g.place not in around]
            found += [(node.lineno, under[-1])] if under else []
    return found


def sets_key_named_at(sources: Sources, where: Frame, call: ast.Call) -> bool:
    """True if the call's key is written as one is in the function around the line: the same text around its values.

    Example: `store.set(f"snapshot/{step}/{self.rank}", "written")`, and that function has `f"snapshot/{step}/{member}"`
    → True.
    """
    tree = sources.function(where.file, where.line)
    here = enclosing_function(tree, where.line) if tree is not None else None
    texts = {_text_around(node) for node in walk(here)} if here is not None else set()
    return bool(call.args) and _text_around(call.args[0]) in texts - {""}


def _text_around(node: ast.AST) -> str:
    """'snapshot/{}/{}' of `f"snapshot/{step}/{member}"`; '' of what is no such text, or has none of its own."""
    if not isinstance(node, ast.JoinedStr):
        return ""
    parts = [str(each.value) if isinstance(each, ast.Constant) else "{}" for each in node.values]
    return "".join(parts) if any(part.strip("{}/:-_. ") for part in parts) else ""
