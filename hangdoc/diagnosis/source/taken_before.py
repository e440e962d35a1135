"""Where a function takes the lock for which it waits further down."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, enclosing_function, walk
from hangdoc.model.process import Frame


def taken_before(where: Frame, sources: Sources) -> Frame | None:
    """The last line before ``where``, in its function, that tries to take what is waited for there; None without one,
    or where the line takes it itself.

    Example: `mine = baton.try_acquire() ⏎ if not mine: ⏎ baton.wait()` of line 3 → line 1.
    """
    tree = sources.function(where.file, where.line)
    if tree is None:
        return None
    calls = [n for n in walk(enclosing_function(tree, where.line)) if isinstance(n, ast.Call)]
    methods = [(n.lineno, dotted(n.func.value), n.func.attr) for n in calls if isinstance(n.func, ast.Attribute)]
    taking = {*names("takes_lock"), *names("tries_lock")}
    awaited = {owner for line, owner, method in methods if line == where.line and method not in taking} - {"", "self"}
    lines = [line for line, owner, method in methods if owner in awaited and method in taking and line < where.line]
    return Frame(where.file, max(lines), where.function) if lines else None
