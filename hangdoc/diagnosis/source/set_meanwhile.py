"""Attributes that a thread, a timer, a callback or a signal's handler sets, while the main thread waits in a call: what
is seen of them now says nothing about what a condition tested before.

Example: `threading.Timer(60, self._ring)`, and `def _ring(self): ⏎ self.due = True`. All ranks have `due = True` after
a minute in a hang, and only one of them tested it a second after that.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hangdoc.diagnosis.bounds import DEEPEST
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.queries import assignments
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import last_name, walk

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_set_meanwhile(sources: Sources, name: str) -> bool:
    """True if such a function, or one that it calls, sets an attribute of the last name of a dotted name."""
    attribute = name.rpartition(".")[2] if "." in name else ""
    if not attribute:
        return False
    return any(_sets(function, attribute) for function in _started(sources))


def _sets(function: _Function, attribute: str) -> bool:
    targets = {
        f"{each.value.id}.{attribute}"
        for each in walk(function)
        if isinstance(each, ast.Attribute) and each.attr == attribute and isinstance(each.value, ast.Name)
    }
    return any(assignments(function, each) for each in targets)


def _started(sources: Sources) -> Iterator[_Function]:
    """What is given to a thread, a timer, a future or a signal, or is a thread's run(); and what these call."""
    given = {
        last_name(each)
        for call in sources.user_calls(*names("starts_thread"), *names("calls_back_later"))
        for each in (*call.call.args, *(word.value for word in call.call.keywords))
    }
    waiting = [function for name in sorted(given - {""}) for _, function in sources.user_definitions(name)]
    waiting += [
        function
        for _, function in sources.user_definitions("run")
        if any(_is_thread(owner) and function in owner.body for owner in _classes(sources))
    ]
    seen: set[int] = set()
    for _ in range(DEEPEST):
        waiting = [each for each in waiting if id(each) not in seen]
        seen.update(map(id, waiting))
        yield from waiting
        called = {last_name(n.func) for each in waiting for n in walk(each) if isinstance(n, ast.Call)}
        waiting = [function for name in sorted(called - {""}) for _, function in sources.user_definitions(name)]


def _classes(sources: Sources) -> Iterator[ast.ClassDef]:
    return (node for _, tree in sources.user_trees() for node in walk(tree) if isinstance(node, ast.ClassDef))


def _is_thread(owner: ast.ClassDef) -> bool:
    return any(last_name(base) in names("starts_thread") for base in owner.bases)
