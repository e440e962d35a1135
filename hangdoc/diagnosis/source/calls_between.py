"""Calls by which one thread, or one rank, waits for another: what they are made on, and who can still make them."""

from __future__ import annotations

import ast
from collections.abc import Collection

from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import LOOPS, dotted, function_name, holds
from hangdoc.model.process import Frame


def receiver_of(where: Frame, method: str, sources: Sources) -> str:
    """What a method is called on at the line, 'self.jobs' of `self.jobs.put(data)`; '' where the line has no such
    call."""
    return next(iter(_receivers(where, (method,), sources)), "")


def would_end(frame: Frame, name: str, methods: Collection[str], sources: Sources, *, ever: bool = False) -> bool:
    """True if the function of ``frame`` can still call one of these methods of an object whose name ends as ``name``.

    Only what follows the frame's line, or lies in one loop with it, is still to come; the other arm of an `if` follows
    its first one in the file only. Example: at line 3 of `box.put(1)`, `while True:`, `box.get()` → get can, put
    cannot. ``name`` '': of any object. ``ever``: what it has called already counts, too, and what others call of it.
    """
    tree = sources.function(frame.file, frame.line)
    if tree is None:
        return False
    last = name.rpartition(".")[2]
    loops = [node for node in ast.walk(tree) if isinstance(node, LOOPS) and holds(node, frame.line)]
    return any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in methods
        and (not last or dotted(call.func.value).rpartition(".")[2] == last)
        and (ever or _follows(tree, frame.line, call.lineno) or any(holds(loop, call.lineno) for loop in loops))
        for call in ast.walk(tree)
    )


def _follows(tree: ast.AST, line: int, later: int) -> bool:
    """True if ``later`` may run after ``line`` without another round: further down, and not in the other arm of an
    `if` that holds both."""
    arms = [node for node in ast.walk(tree) if isinstance(node, ast.If) and holds(node, line) and holds(node, later)]
    return later >= line and not any(_in_suite(node.body, line) and _in_suite(node.orelse, later) for node in arms)


def _in_suite(suite: list[ast.stmt], line: int) -> bool:
    return any(holds(statement, line) for statement in suite)


def places_of_methods(name: str, methods: Collection[str], sources: Sources) -> list[Frame]:
    """Where the user's code calls one of these methods of an object whose name ends as ``name``, or hands one on.
    ``name`` '': where it calls one of any object, without arguments.

    Example: 'self.records' and get → ship.py:9 run(), for `batch.append(records.get())` or `iter(records.get, None)`.
    """
    last = name.rpartition(".")[2]
    found: dict[tuple[str, int], str] = {}
    for file, tree in sources.user_trees():
        bare = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call) and not node.args}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Attribute) or node.attr not in methods:
                continue
            if dotted(node.value).rpartition(".")[2] == last if last else id(node) in bare:
                found[file, node.lineno] = function_name(tree, node.lineno)
    return [Frame(file, line, found[file, line]) for file, line in sorted(found)]


def remote_function(where: Frame | None, sources: Sources) -> str:
    """The function that the line calls on another rank, or waits for (torch.distributed.rpc); '' for any other line.

    Examples: `rpc.rpc_sync("ps", update, args=(x,))` → 'update'; `f.wait()` after `f = rpc_async("ps", update)` → the
    same.
    """
    return _passed(where, names("remote_call"), "wait", 1, sources)


def task_function(where: Frame | None, sources: Sources) -> str:
    """The function whose result the line waits for: 'load' of `f.result()` after `f = pool.submit(load, x)`."""
    return _passed(where, ("submit",), "result", 0, sources)


def _passed(where: Frame | None, functions: Collection[str], waits: str, at: int, sources: Sources) -> str:
    """The name of argument ``at`` of a call of one of the functions, at the line, or whose result it waits for; '' for
    a parameter."""
    # One walk over the function: what is kept and what is called here are told apart at each node.
    tree = sources.function(where.file, where.line) if where is not None else None
    if tree is None or where is None:
        return ""
    awaited = set(_receivers(where, (waits,), sources)) - {""}
    found = ""
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Assign | ast.Expr | ast.Return) else None
        here = isinstance(value, ast.Call) and holds(value, where.line)
        kept = isinstance(node, ast.Assign) and any(dotted(target) in awaited for target in node.targets)
        for call in ast.walk(node) if here or kept else ():
            if isinstance(call, ast.Call) and _last(call.func) in functions and len(call.args) > at:
                found = _last(call.args[at]) or found
    return "" if found in _parameters(tree) else found


def _parameters(tree: ast.AST) -> set[str]:
    """The names of the functions' parameters: which function such a name stands for, the caller decides."""
    return {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}


def _receivers(where: Frame, methods: Collection[str], sources: Sources) -> list[str]:
    """What each call of one of these methods at the line is made on; '' where that has no name."""
    tree = sources.function(where.file, where.line)
    return [
        dotted(node.func.value)
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in methods
        and holds(node, where.line)
    ]


def _last(node: ast.AST) -> str:
    return dotted(node).rpartition(".")[2]
