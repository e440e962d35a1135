"""Where a coroutine can be suspended: the awaits of what is no function of the user's, by the source alone."""

from __future__ import annotations

import ast
from dataclasses import replace

from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, holds, last_name, walk
from hangdoc.model.process import Frame

_RUNNERS = ("asyncio.run",)


def only_await(sources: Sources, runs_at: Frame) -> tuple[Frame, str] | None:
    """(line, method) of the only await of a method at which what the line hands to an event loop, or whose result it
    waits for, can be suspended; None where there are several, or not all that it awaits is known. The method is '' of a
    future that the function makes itself.

    Examples: `asyncio.run(train(cfg))`, train awaits `pool.collect()`, which awaits `self.queue.join()` and nothing
    else → the line of that, 'join'; `run_coroutine_threadsafe(self.queue.join(), loop).result()` → its line, 'join'.
    """
    given = given_to_loop(sources, runs_at)
    if len(given) != 1 or not isinstance(given[0], ast.Call):
        return None
    coroutines: _Coroutines = {}
    for file, each in sources.user_trees():
        for node in walk(each):
            if isinstance(node, ast.AsyncFunctionDef):
                coroutines.setdefault(node.name, {})[file, node.lineno] = node
    called = given[0].func
    if isinstance(called, ast.Attribute) and called.attr not in coroutines:
        return replace(runs_at, line=given[0].lineno), called.attr
    found = set(iter(()))
    return next(iter(found)) if len(found) == 1 else None


def given_to_loop(sources: Sources, at: Frame) -> list[ast.expr]:
    """The coroutines that calls at the line hand to an event loop; else that of the future whose result it waits for,
    which has a name."""
    tree = sources.function(at.file, at.line)
    calls = [n for n in walk(tree) if isinstance(n, ast.Call) and holds(n, at.line)] if tree is not None else []
    given = [call.args[0] for call in calls if _runs(call)]
    waits = {dotted(n.func.value) for n in calls if isinstance(n.func, ast.Attribute) and n.func.attr == "result"}
    if given or not waits - {""}:
        return given
    return [
        node.value.args[0]
        for _, each in sources.trees(at.file)
        for node in walk(each)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _runs(node.value)
        if waits & set(map(dotted, node.targets)) and any("." in name or holds(each, at.line) for name in waits)
    ]


def _runs(call: ast.Call) -> bool:
    return bool(call.args) and (dotted(call.func) in _RUNNERS or last_name(call.func) in names("hands_to_loop"))


_Coroutines = dict[str, dict[tuple[str, int], ast.AsyncFunctionDef]]
"""Name → the coroutine functions of that name, by place."""
