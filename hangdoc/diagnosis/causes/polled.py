"""What decides whether the call is made that ranks poll for, by the store or by files, where one place makes it."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.causes.call_conditions import conditions_of_call
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.sources import Sources, UserCall
from hangdoc.diagnosis.source.syntax import LOOPS, holds, last_name, text_of
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame, Stack

_ENDED_BY = {"asks_store": "fills_store", "asks_files": "makes_file"}
"""What a polling loop calls → what ends it."""


def made_elsewhere(sources: Sources, stack: Stack) -> tuple[Frame, list[Condition]] | None:
    """(the only line that makes what a process polls for, the conditions around it); None where there are several such
    lines, or nothing decides about it.

    Example: `while store.add(votes, 0) < world: ⏎ sleep(1)`, and `vote()` returns under `if not self.dirty:` before
    its `store.add(votes, 1)` → that line, and the `if`.
    """
    where = next(iter(user_stack(stack)), None)
    tree = sources.function(where.file, where.line) if where is not None else None
    if where is None or tree is None:
        return None
    loops = [node for node in ast.walk(tree) if isinstance(node, LOOPS) and holds(node, where.line)]
    inner = max(loops, key=lambda node: node.lineno, default=None)
    for asked, ending in _ENDED_BY.items():
        asking = [n for n in ast.walk(inner) if isinstance(n, ast.Call)] if inner is not None else []
        stores = {_object(call) for call in asking if last_name(call.func) in names(asked)}
        if inner is None or not stores:
            continue
        calls = [
            each
            for each in sources.user_calls(*names(ending))
            if not (each.file == where.file and holds(inner, each.call.lineno))
            and not _only_asks(each)
            and (asked == "asks_files" or _object(each.call) in stores)
        ]
        places = {Frame(c.file, c.call.lineno, getattr(c.function, "name", "<module>")) for c in calls}
        if len(places) == 1:
            (at,) = places
            deciding = conditions_of_call(sources, at, stack)
            return (at, deciding) if deciding else None
    return None


def _object(call: ast.Call) -> str:
    """'store' of `self.store.add(…)`."""
    return last_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def _only_asks(each: UserCall) -> bool:
    """True for `store.add(key, 0)`, which reads a count."""
    return last_name(each.call.func) == "add" and (len(each.call.args) < 2 or text_of(each.call.args[1]) == "0")
