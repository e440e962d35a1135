"""What changes the name under which a line sets a key of the store."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function, walk
from hangdoc.model.process import Frame


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
