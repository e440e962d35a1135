"""Why a main thread went on beside a thread of its own: the condition under which it waits for it, or starts it.

Example: of a thread that runs _write(),

    66  self.thread = threading.Thread(target=self._write)
    67  self.thread.start()
    68  if nbytes <= self.cfg.inline_limit:
    69      self.thread.join()

→ `if nbytes <= self.cfg.inline_limit:` at line 68.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hangdoc.diagnosis.condition.branch_point import is_rank_name
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS, Guard, guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function, last_name, walk
from hangdoc.model.message import Condition
from hangdoc.model.process import Stack

_MOST_WAITING = 40
"""Functions that wait for a thread; chosen by hand."""


def goes_on_beside(sources: Sources, thread: Stack) -> Condition | None:
    """The one condition that decides whether who starts the thread waits for it; None where there is none, or
    more than one."""
    way = user_stack(thread)
    ran = plain(way[-1].function) if way else ""
    starts = list(_starts(sources, ran)) if ran else []
    waiting = _functions_that_wait(sources) if starts else set()
    conditions = _around_waits(starts, waiting)
    return conditions[0] if len(conditions) == 1 else None


_Start = tuple[str, ast.AST, ast.Call]
"""File, the function around the call, the call that starts the thread."""


def _starts(sources: Sources, function: str) -> Iterator[_Start]:
    """The calls that have a thread run the function: `Thread(target=self._write)`, `pool.submit(write, step)`."""
    seen: set[tuple[str, int]] = set()
    for file, tree in sources.user_trees():
        for call in _calls(tree):
            given = (*call.args, *(each.value for each in call.keywords))
            starting = last_name(call.func) in names("starts_thread") and function in map(last_name, given)
            if starting and (file, call.lineno) not in seen:
                seen.add((file, call.lineno))
                yield file, enclosing_function(tree, call.lineno), call


def _functions_that_wait(sources: Sources) -> set[str]:
    """The names of the user's functions that wait for a thread, and of what waits itself."""
    found = {
        function.name
        for _, tree in sources.user_trees()
        for function in walk(tree)
        if isinstance(function, ast.FunctionDef) and any(_waits(call) for call in _calls(function))
    }
    return set(sorted(found)[:_MOST_WAITING])


def _waits(call: ast.Call) -> bool:
    """True for `thread.join()` and `future.result()`: `", ".join(names)` has something to join."""
    return isinstance(call.func, ast.Attribute) and call.func.attr in names("waits_for_thread") and not call.args


def _around_waits(starts: list[_Start], waiting: set[str]) -> list[Condition]:
    """The conditions around the waits behind a start, in its function, that are not around the start."""
    found: dict[Condition, None] = {}
    for file, function, start in starts:
        known = {guard.place for guard in guards(function, start.lineno)}
        for call in _calls(function):
            if call.lineno > start.lineno and (_waits(call) or last_name(call.func) in waiting):
                own = [g for g in guards(function, call.lineno) if g.place not in known and _decides(g)]
                found.update({Condition(own[-1].condition, file, own[-1].line): None} if own else {})
    return list(found)


def _decides(guard: Guard) -> bool:
    """False for a test whether there is a thread at all, and for what is alike on all ranks or differs from the
    beginning."""
    for_all = [all(map(each, guard.names)) for each in (is_rank_name, pattern("job_setting").search)]
    decides = guard.kind in CONDITIONS and "None" not in guard.condition
    return decides and not (guard.names and any(for_all))


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in walk(tree) if isinstance(node, ast.Call))
