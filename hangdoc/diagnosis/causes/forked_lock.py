"""Who can have held a lock that a forked child inherited: the thread that takes it, and under what it is started.

Example: `if missing: ⏎ Thread(target=self.warm).start()`, warm() has `with self.lock:`, and the child, which the main
thread forks meanwhile, waits at another `with self.lock:` → the `if`.
"""

from __future__ import annotations

import ast

from hangdoc.diagnosis.causes.call_conditions import started_under
from hangdoc.diagnosis.causes.phrases import place
from hangdoc.diagnosis.causes.wait_chain import Fault, follow
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.locks import wanted
from hangdoc.diagnosis.source.queries import calls_of
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, function_name, walk
from hangdoc.model.message import Condition, Joined, Message
from hangdoc.model.process import Frame, Process


def is_forked_with_lock(case: Case, rank: int) -> bool:
    """True if what the rank waits for leads to a child that was forked while a thread held a lock."""
    return _child(case, rank) is not None


def who_held_it(case: Case, rank: int) -> Message:
    """'warm() takes that lock at names.py:9 in a thread that is started under `if missing:`'; '' where nothing decides
    about the only thread that takes it, or several do."""
    child = _child(case, rank)
    main = child.last.main if child is not None and child.last is not None else None
    own = user_stack(main.frames) if main is not None else ()
    locks = {lock.rpartition(".")[2] for lock in wanted(own[0], case.sources)} if own else set()
    found: dict[Frame, list[Condition]] = {}
    for at in _taking(case.sources, locks):
        deciding = next(filter(None, (started_under(case.sources, ran, ()) for ran in _running(case.sources, at))), [])
        if deciding:
            found[at] = deciding
    if len(found) != 1:
        return ""
    ((at, deciding),) = found.items()
    return ["a thread takes that lock at ", place(at), ", and is started under ", Joined(deciding, " and ")]


def _child(case: Case, rank: int) -> Process | None:
    return next((step.process for step in follow(case, rank) if step.fault is Fault.FORKED_LOCK), None)


def _taking(sources: Sources, locks: set[str]) -> list[Frame]:
    """The lines of the user's that take a lock of one of these names."""
    return [
        Frame(file, node.lineno, function_name(tree, node.lineno))
        for file, tree in sources.user_trees()
        for node in walk(tree)
        if isinstance(node, ast.With) and any(dotted(i.context_expr).rpartition(".")[2] in locks for i in node.items)
    ]


def _running(sources: Sources, at: Frame) -> list[Frame]:
    """The line, for its function; and the calls of that function, for theirs."""
    calls = [
        Frame(file, line, function_name(tree, line))
        for file, tree in sources.user_trees()
        for line in sorted(calls_of(tree, at.function))
    ]
    return [at, *calls]
