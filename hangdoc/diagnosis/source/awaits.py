"""Where a coroutine can be suspended: the awaits of what is no function of the user's, by the source alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from hangdoc.diagnosis.bounds import COMPARED
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import LOOPS, dotted, holds, last_name, walk
from hangdoc.model.process import Frame

_RUNNERS = ("asyncio.run",)
_OPAQUE = (ast.AsyncFor, ast.AsyncWith)


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
    found = set(_awaits(coroutines, last_name(called), set()))
    return next(iter(found)) if len(found) == 1 else None


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


_Coroutines = dict[str, dict[tuple[str, int], ast.AsyncFunctionDef]]
"""Name → the coroutine functions of that name, by place."""


def _awaits(coroutines: _Coroutines, name: str, seen: set[str]) -> Iterator[tuple[Frame, str] | None]:
    """The awaits of the coroutine of that name and of those that it awaits; None for one that is not known."""
    functions = coroutines.get(name, {})
    if len(functions) != 1 or len(seen) > COMPARED:
        yield None
        return
    seen.add(name)
    (file, _), function = next(iter(functions.items()))
    for node in walk(function):
        if isinstance(node, ast.AsyncWith) and all(_is_waited_for(item.context_expr, function) for item in node.items):
            continue  # the lock of a condition, which nobody holds while it is suspended
        if isinstance(node, _OPAQUE) or (node is not function and isinstance(node, ast.AsyncFunctionDef)):
            yield None
        elif isinstance(node, ast.Await):
            called = last_name(node.value.func) if isinstance(node.value, ast.Call) else ""
            if called in coroutines:
                yield from _awaits(coroutines, called, seen) if called not in seen else ()
            else:
                known = called or _is_made_there(function, node.value)
                yield (Frame(file, node.lineno, function.name), called) if known else None


def _is_made_there(function: ast.AST, awaited: ast.expr) -> bool:
    """True for a name that the function itself sets to a new future."""
    made = (n for n in walk(function) if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call))
    calls = [last_name(n.value.func) for n in made if isinstance(n.value, ast.Call) and _sets(n, awaited)]
    return len(calls) == 1 and calls[0] in names("makes_future")


def _sets(node: ast.Assign, name: ast.expr) -> bool:
    return dotted(name) in {*map(dotted, node.targets)} - {""}


def _is_waited_for(context: ast.expr, function: ast.AsyncFunctionDef) -> bool:
    """True if the function awaits a `wait` of what it enters: `async with self.cond: ⏎ await self.cond.wait()`."""
    name = dotted(context)
    awaited = (n.value.func for n in walk(function) if isinstance(n, ast.Await) and isinstance(n.value, ast.Call))
    return bool(name) and any(
        isinstance(f, ast.Attribute) and f.attr in ("wait", "wait_for") and dotted(f.value) == name for f in awaited
    )
