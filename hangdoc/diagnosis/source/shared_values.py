"""What ends a wait for something that processes share: a value in memory that a loop polls, an event or a semaphore."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from hangdoc.diagnosis.frames.landmarks import below_user, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.calls_between import receiver_of
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, enclosing_function, holds, innermost_loop, last_name, walk
from hangdoc.model.process import Frame, Stack

_MOST_STEPS = 2
"""Functions that a loop's test calls, one by way of the other; chosen by hand."""
_SIGNALS = {
    "wait": ("set",),
    "acquire": ("release",),
    "recv": ("send",),
    "recv_bytes": ("send_bytes",),
    "get": ("put", "put_nowait"),
}
"""Method by which a process waits for others → those that end it: of multiprocessing's events, semaphores, pipes and
queues."""
GIVEN = {"set": "set", "release": "released", "send": "sent", "send_bytes": "sent", "put": "put", "put_nowait": "put"}
"""Method that ends a wait → what who calls it has done."""
_BY_ANY_NAME = ("recv", "recv_bytes")
"""The two ends of a pipe have names of their own."""
_STORED = ("value", "raw")
"""The attributes of what multiprocessing shares: `Value.value`, `Array.raw`."""


def shares_memory(sources: Sources) -> bool:
    """True if the program makes memory that processes share."""
    return bool(sources.user_calls(*names("shares_memory")))


def what_changes_value(sources: Sources, stack: Stack) -> Frame | None:
    """The only line that writes into the shared memory which the loop around the stack's innermost line tests; None
    where it may be one of several, or the program shares no memory.

    Example: `while self.version() < wanted: ⏎ sleep(0.1)`, and version() returns `unpack("q", self.page)` → the only
    `pack_into("q", self.page, 0, version)`.
    """
    where = next(iter(user_stack(stack)), None)
    tree = sources.function(where.file, where.line) if where is not None else None
    loop = innermost_loop(tree, where.line) if tree is not None and where is not None else None
    if loop is None or where is None or tree is None or not shares_memory(sources):
        return None
    tested = _tested(sources, loop, _MOST_STEPS) - {"self", ""}
    found: dict[tuple[str, int], Frame] = {}
    for file, module in sources.user_trees():
        for node in walk(module):
            line = getattr(node, "lineno", 0)
            if line and tested & set(written(node)) and not (file == where.file and holds(loop, line)):
                name = getattr(enclosing_function(module, line), "name", "<module>")
                if name not in names("makes_object"):
                    found.setdefault((file, line), Frame(file, line, name))
    return next(iter(found.values())) if len(found) == 1 else None


def what_signals(sources: Sources, stack: Stack) -> tuple[Frame, str] | None:
    """(the only line, its method) that sets the event, fills the queue, writes into the pipe or frees the semaphore of
    multiprocessing's for which the stack waits; None for any other wait, and for what one function takes and frees.

    Example: `self.ready.wait()` → the only `ready.set()`, 'set'.
    """
    own, below = user_stack(stack), below_user(stack)
    known = (*names("process_lock_file"), *names("process_channel_file"))
    if not own or not below or not below[-1].file.endswith(known):
        return None
    method = plain(below[-1].function)
    name = receiver_of(own[0], method, sources).rpartition(".")[2] if method in _SIGNALS else ""
    found = {
        (each.file, each.call.lineno): (getattr(each.function, "name", "<module>"), each.call.func.attr)
        for each in sources.user_calls(*_SIGNALS.get(method, ()))
        if isinstance(each.call.func, ast.Attribute)
        and name
        and (last_name(each.call.func.value) == name or (method in _BY_ANY_NAME and len(each.call.args) == 1))
    }
    if len(found) != 1:
        return None
    (((file, line), (function, by)),) = found.items()
    return (Frame(file, line, function), by) if function != plain(own[0].function) else None


def _tested(sources: Sources, node: ast.AST, steps: int) -> set[str]:
    """The names in the tests of a loop, and in what the functions return that these call."""
    tests = tests_of(node) if isinstance(node, ast.For | ast.While) else [node]
    parts = [part for test in tests for part in walk(test)]
    found = {last_name(part) for part in parts if isinstance(part, ast.Name | ast.Attribute)}
    for name in dict.fromkeys(last_name(p.func) for p in parts if isinstance(p, ast.Call)) if steps else ():
        bodies = sources.user_definitions(name)
        returns = [n for n in walk(bodies[0][1]) if isinstance(n, ast.Return)] if len(bodies) == 1 else []
        found = found.union(*(_tested(sources, each, steps - 1) for each in returns))
    return found


def tests_of(loop: ast.AST) -> list[ast.AST]:
    """What decides whether a loop goes on: its own test, and those that lead to its `break` or `return`."""
    leaving = (n for n in walk(loop) if isinstance(n, ast.If) and isinstance(n.body[-1], ast.Break | ast.Return))
    return [*([loop.test] if isinstance(loop, ast.While) else []), *(each.test for each in leaving)]


def places_tested(loop: ast.AST) -> set[tuple[str, str]]:
    """(what, name of the place in it) of what a loop tests.

    Example: `while self.flags[slot, reader]:` → {('flags', 'slot'), ('flags', 'reader')}.
    """
    parts = [part for test in tests_of(loop) for part in walk(test) if isinstance(part, ast.Subscript)]
    return {
        (last_name(part.value), dotted(name))
        for part in parts
        for name in walk(part.slice)
        if isinstance(name, ast.Name | ast.Attribute) and dotted(name) not in ("", "self")
    }


def written(node: ast.AST) -> Iterator[str]:
    """The names of what a statement or a call writes into: 'flags' of `flags[rank] = 1`, 'page' of `pack_into("q",
    self.page, 0, 1)`, 'state' of `state.fill_(1)` and `state.value = 1`."""
    if isinstance(node, ast.Assign | ast.AugAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Subscript) or (isinstance(target, ast.Attribute) and target.attr in _STORED):
                yield last_name(target.value)
    elif isinstance(node, ast.Call) and last_name(node.func) in names("writes_into"):
        yield from (last_name(each) for each in node.args[:2])
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _changes_its_object(node.func.attr):
        yield last_name(node.func.value)


def _changes_its_object(method: str) -> bool:
    return method.endswith("_") or method in names("writes_into_itself")


def lines_at(at: Frame) -> Callable[[ast.AST], list[int]]:
    """What gives the line ``at`` of a statement that holds it, and of no other: [] for these."""

    def lines(node: ast.AST) -> list[int]:
        first = getattr(node, "lineno", 0)
        return [at.line] if first and holds(node, at.line) else []

    return lines
