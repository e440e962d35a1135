"""Calls by which one thread, or one rank, waits for another: what they are made on, and who can still make them."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from hangdoc.diagnosis.bounds import DEEPEST
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import LOOPS, dotted, function_name, holds, walk
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
    loops = [node for node in walk(tree) if isinstance(node, LOOPS) and holds(node, frame.line)]
    return any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in methods
        and (not last or _named(call.func.value).rpartition(".")[2] == last)
        and (ever or _follows(tree, frame.line, call.lineno) or any(holds(loop, call.lineno) for loop in loops))
        for call in walk(tree)
    )


def _follows(tree: ast.AST, line: int, later: int) -> bool:
    """True if ``later`` may run after ``line`` without another round: further down, and not in the other arm of an
    `if` that holds both."""
    arms = [node for node in walk(tree) if isinstance(node, ast.If) and holds(node, line) and holds(node, later)]
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
        bare = {id(node.func) for node in walk(tree) if isinstance(node, ast.Call) and not node.args}
        for node in walk(tree):
            if not isinstance(node, ast.Attribute) or node.attr not in methods:
                continue
            if _named(node.value).rpartition(".")[2] == last if last else id(node) in bare:
                found[file, node.lineno] = function_name(tree, node.lineno)
    return [Frame(file, line, found[file, line]) for file, line in sorted(found)]


def remote_function(where: Frame | None, sources: Sources) -> str:
    """The function that the line calls on another rank, or waits for (torch.distributed.rpc); '' for any other line.

    Examples: `rpc.rpc_sync("ps", update, args=(x,))` → 'update'; `f.wait()` after `f = rpc_async("ps", update)`, and
    `wait_all(futures)` after `futures = [rpc_async("ps", update) for …]` → the same; `rref.rpc_sync().arrive()` →
    'arrive'.
    """
    return _passed(where, _remote(), sources)


def requests(sources: Sources) -> dict[str, list[Frame]]:
    """Function that ranks call on others → the lines that call it."""
    found: dict[str, set[Frame]] = {}
    for file, tree in sources.user_trees():
        for call in walk(tree):
            if isinstance(call, ast.Call) and (name := _remote().handed_by(call)):
                found.setdefault(name, set()).add(Frame(file, call.lineno, function_name(tree, call.lineno)))
    return {name: sorted(places, key=lambda at: (at.file, at.line)) for name, places in found.items()}


def ending_requests(name: str, methods: Collection[str], sources: Sources) -> tuple[str, ...]:
    """The functions that ranks call on others, and by which alone a wait on the object can end; () where other code
    may end it as well.

    Example: `self.updated.notify_all()` stands in `Server.push()` alone, which `push()` calls, and
    `rpc_async("ps", push)` calls that → ('push',).
    """
    requested = requests(sources).keys()
    found: set[str] = set()
    for place in places_of_methods(name, methods, sources) if requested else ():
        run_by = {place.function}
        for _ in range(DEEPEST):
            callers = [sources.user_calls(function) for function in run_by - requested]
            if not all(callers):
                return ()  # something that is not seen calls it
            inner = {getattr(each.function, "name", "<module>") for calls in callers for each in calls}
            run_by = (run_by & requested) | inner
        if not run_by <= requested:
            return ()
        found |= run_by
    return tuple(sorted(found))


def _remote() -> _Calls:
    return _Calls(names("remote_call"), 1, names("remote_wait"), names("remote_wait_all"))


def task_function(where: Frame | None, sources: Sources) -> str:
    """The function whose result the line waits for: 'load' of `f.result()` after `f = pool.submit(load, x)`, and of
    `await asyncio.to_thread(load, x)`."""
    ways = (_Calls(names("hands_to_thread"), 0, ("result",)), _Calls(names("hands_to_executor"), 1, ()))
    return next((found for calls in ways if (found := _passed(where, calls, sources))), "")


@dataclass(frozen=True, slots=True)
class _Calls:
    """Calls that hand a function on, as their argument ``at``, and what waits for the results."""

    functions: Collection[str]
    at: int
    waits: Collection[str]
    """Methods of a result."""
    together: Collection[str] = ()
    """Functions of a list of results."""

    def handed_on(self, node: ast.AST) -> str:
        """The name of the function that the last such call in the node hands on; '' where there is none."""
        handed = [self.handed_by(call) for call in walk(node) if isinstance(call, ast.Call)]
        return next((name for name in reversed(handed) if name), "")

    def handed_by(self, call: ast.Call) -> str:
        """The name of the function that this call hands on, or that it calls through a proxy."""
        if _last(call.func) in self.functions and len(call.args) > self.at:
            return _last(call.args[self.at])
        proxy = call.func.value if isinstance(call.func, ast.Attribute) else None
        of_proxy = isinstance(proxy, ast.Call) and _method(proxy) in self.functions and not proxy.args
        return _method(call) if of_proxy else ""

    def waits_on(self, call: ast.Call) -> ast.AST | None:
        """What the call waits for: `f` of `f.wait()`, `futures` of `wait_all(futures)`; None for any other call."""
        if isinstance(call.func, ast.Attribute) and call.func.attr in self.waits:
            return call.func.value
        return call.args[0] if _last(call.func) in self.together and call.args else None


def _passed(where: Frame | None, calls: _Calls, sources: Sources) -> str:
    """The function that one of the calls hands on, at the line, or whose result it waits for; '' for a parameter."""
    tree = sources.function(where.file, where.line) if where is not None else None
    if tree is None or where is None:
        return ""
    found = ""
    awaited: list[ast.AST] = []
    for node in walk(tree):
        value = node.value if isinstance(node, ast.Assign | ast.Expr | ast.Return) else None
        value = value.value if isinstance(value, ast.Await) else value
        if isinstance(value, ast.Call) and holds(value, where.line) and _last(value.func) != "append":
            found = calls.handed_on(value) or found
        if isinstance(node, ast.Call) and holds(node, where.line) and (waits := calls.waits_on(node)) is not None:
            awaited.append(waits)
    results = _results(where, calls, sources) if awaited else {}
    for each in awaited:
        found = results.get(dotted(each)) or calls.handed_on(each) or found
    return "" if found in _parameters(tree) else found


def _results(where: Frame, calls: _Calls, sources: Sources) -> dict[str, str]:
    """What keeps the results of such calls, in the function or as an attribute anywhere in its file → the function.

    Example: `jobs = [remote(to, play) for to in …]` and `[job.to_here() for job in jobs]` → {'jobs': 'play', 'job':
    'play'}.
    """
    own = sources.function(where.file, where.line)
    found: dict[str, str] = {}
    for tree in (*(tree for _, tree in sources.trees(where.file)), *([own] if own is not None else [])):
        kept = dict(_kept(tree, calls))
        found.update({name: function for name, function in kept.items() if tree is own or "." in name})
    loops = [node for node in walk(own) if isinstance(node, ast.For | ast.comprehension)] if own is not None else []
    items = [(dotted(node.target), dotted(node.iter)) for node in loops]
    return found | {item: found[kept] for item, kept in items if item and kept in found}


def _kept(tree: ast.AST, calls: _Calls) -> Iterator[tuple[str, str]]:
    for node in walk(tree):
        if isinstance(node, ast.Assign) and (function := calls.handed_on(node.value)):
            yield from ((name, function) for target in node.targets if (name := dotted(target)))
        elif isinstance(node, ast.Call) and _method(node) == "append" and (function := calls.handed_on(node)):
            yield dotted(node.func).rpartition(".")[0], function


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _parameters(tree: ast.AST) -> set[str]:
    """The names of the functions' parameters: which function such a name stands for, the caller decides."""
    return {node.arg for node in walk(tree) if isinstance(node, ast.arg)}


def _receivers(where: Frame, methods: Collection[str], sources: Sources) -> list[str]:
    """What each call of one of these methods at the line is made on; '' where that has no name."""
    tree = sources.function(where.file, where.line)
    return [
        _named(node.func.value)
        for node in (walk(tree) if tree is not None else ())
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in methods
        and holds(node, where.line)
    ]


def _named(node: ast.AST) -> str:
    """'self.jobs' of such a name, 'entry.full' of `entry["full"]`; '' of anything else."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        return f"{dotted(node.value)}.{node.slice.value}"
    return dotted(node)


def _last(node: ast.AST) -> str:
    return dotted(node).rpartition(".")[2]
