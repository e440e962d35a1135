"""Where a coroutine can be suspended: the awaits of what is no function of the user's, by the source alone."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import LOOPS, dotted, holds, last_name, walk
from hangdoc.model.process import Frame

_RUNNERS = ("asyncio.run",)


def awaits_in_loops(sources: Sources, runs_at: Frame) -> list[Frame]:
    """The lines, in loops of the coroutine that the line hands to an event loop, at which it awaits something.

    Example: `asyncio.run(rounds(port))`, and `for step in range(30): ⏎ … ⏎ await reader.readline()` in rounds().
    """
    given = [each for each in given_to_loop(sources, runs_at) if isinstance(each, ast.Call)]
    bodies = sources.user_definitions(last_name(given[0].func)) if len(given) == 1 else []
    return [
        Frame(file, node.lineno, body.name)
        for file, body in bodies
        for node in walk(body)
        if isinstance(node, ast.Await)
        if any(isinstance(loop, LOOPS) and holds(loop, node.lineno) for loop in walk(body))
    ]


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
