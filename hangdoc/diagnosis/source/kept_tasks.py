"""Tasks of an event loop that nobody awaits: an exception that ends one stays in it, and nobody hears of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from hangdoc.diagnosis.source.awaits import awaits_own_future, given_to_loop
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, last_name, walk
from hangdoc.model.process import Frame

_STARTS = ("create_task", "ensure_future")
_RESULT = "set_result"
_OF_SEVERAL = ("gather", "wait", "wait_for", "shield")
"""What awaits the coroutines that it is given, of asyncio's."""
_PASSED = ("sleep", "put")
"""Awaits that end by themselves: a timer that an idle event loop has none of, a queue that takes what it is given."""
_RUNNERS = ("asyncio.run",)
_DEEPEST = 16
"""Coroutines that await each other; chosen by hand."""


@dataclass(frozen=True, slots=True)
class KeptTask:
    """The only line that gives futures their result, ``ends_at``, is in what the task runs that is started at
    ``started_at``; ``calls``: the last names of what its function calls."""

    started_at: Frame
    ends_at: Frame
    calls: frozenset[str]


def kept_task(sources: Sources) -> KeptTask | None:
    """The only task that gives a future its result, where nobody awaits that task or asks how it ended; else None.

    Example: `self.task = asyncio.create_task(self.run())`, no other line reads `self.task`, and run() has the only
    `done.set_result(row)` of the program.
    """
    setting = {(each.file, each.call.lineno): each.function for each in sources.user_calls(_RESULT)}
    if len(setting) != 1:
        return None
    (((file, line), function),) = setting.items()
    if not isinstance(function, ast.AsyncFunctionDef):
        return None
    starts = [
        each
        for each in sources.user_calls(*_STARTS)
        if any(isinstance(arg, ast.Call) and last_name(arg.func) == function.name for arg in each.call.args)
    ]
    # A method may be called `run`, as that of asyncio is.
    called = [c for c in sources.user_calls(function.name) if dotted(c.call.func) not in _RUNNERS]
    if len(starts) != 1 or len(called) != 1:
        return None
    start = starts[0]
    kept = {
        last_name(target)
        for node in walk(start.function)
        if isinstance(node, ast.Assign) and node.value is start.call
        for target in node.targets
    }
    given = isinstance(start.function, ast.Lambda) or _is_used_there(start.function, start.call)
    if given or any(_is_asked(tree, name) for _, tree in sources.user_trees() for name in kept):
        return None
    calls = frozenset(last_name(node.func) for node in walk(function) if isinstance(node, ast.Call))
    started_at = start.at
    return KeptTask(started_at, Frame(file, line, function.name), calls)


def _is_used_there(function: ast.AST, call: ast.Call) -> bool:
    """True if what the call returns is neither given a name nor dropped: `await create_task(run())`."""
    plain = (n for n in walk(function) if isinstance(n, ast.Assign | ast.Expr))
    return not any(node.value is call for node in plain)


def _is_asked(tree: ast.AST, name: str) -> bool:
    """True if something reads what has that name, other than to cancel it."""
    cancelled = {
        node.func.value
        for node in walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "cancel"
    }
    named = (n for n in walk(tree) if isinstance(n, ast.Name | ast.Attribute) and last_name(n) == name)
    return any(isinstance(node.ctx, ast.Load) and node not in cancelled for node in named)


def awaited_futures(sources: Sources, runs_at: Frame) -> list[Frame]:
    """The lines at which what the line hands to an event loop awaits futures that the program makes; [] where it may
    await anything else.

    Example: `asyncio.run(front_end())`, which awaits `gather(*(client(i) for i in range(6)))`, and client() awaits
    `engine.score(x)`, whose `return await done` is the only await but `queue.put(…)` → that line.
    """
    given = [each for each in given_to_loop(sources, runs_at) if isinstance(each, ast.Call)]
    found = list(_suspended(sources, last_name(given[0].func), set())) if len(given) == 1 else []
    return [] if None in found else [at for at in dict.fromkeys(found) if at is not None]


def _suspended(sources: Sources, name: str, seen: set[str]) -> Iterator[Frame | None]:
    bodies = sources.user_definitions(name)
    if len(bodies) != 1 or not isinstance(bodies[0][1], ast.AsyncFunctionDef) or len(seen) > _DEEPEST:
        yield None
        return
    seen.add(name)
    ((file, function),) = bodies
    for node in walk(function):
        if isinstance(node, ast.AsyncFor | ast.AsyncWith):
            yield None
        if not isinstance(node, ast.Await):
            continue
        at = Frame(file, node.lineno, function.name)
        called = last_name(node.value.func) if isinstance(node.value, ast.Call) else ""
        if called in _OF_SEVERAL:
            inner = [n for n in walk(node.value) if isinstance(n, ast.Call) and n is not node.value]
            names = [last_name(n.func) for n in inner if _is_coroutine(sources, last_name(n.func))]
            yield from (each for one in names if one not in seen for each in _suspended(sources, one, seen))
            if not names:
                yield None
        elif _is_coroutine(sources, called):
            yield from _suspended(sources, called, seen) if called not in seen else ()
        elif called not in _PASSED:
            yield at if not called and awaits_own_future(sources, at) else None


def _is_coroutine(sources: Sources, name: str) -> bool:
    return bool(name) and any(isinstance(body, ast.AsyncFunctionDef) for _, body in sources.user_definitions(name))
