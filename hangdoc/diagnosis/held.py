"""A lock that one thread of a rank holds over a collective, and that its main thread wants: the rank cannot come to
the calls that the others have to make before they can answer that one."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from hangdoc.diagnosis.sequences import RankProgram, Token, user_stack
from hangdoc.diagnosis.syntax import Sources, dotted, holds
from hangdoc.diagnosis.threads import kind_mark
from hangdoc.model.diagnosis import Activity
from hangdoc.model.process import Frame, Process, Stack


@dataclass(frozen=True, slots=True)
class HeldLock:
    """``name``, as the source has it, is held by the thread ``holder`` since the `with` at ``frame`` over ``call``."""

    name: str
    holder: str
    frame: Frame
    call: Token


def held_lock(process: Process, activity: Activity, program: RankProgram, sources: Sources) -> HeldLock | None:
    """The lock that the rank's main thread waits for, where another thread of it stands in a collective under a `with`
    of the same name. An attribute of ``self`` must be of the same class."""
    wanted = _wanted(activity.where, sources)
    if not wanted or activity.where is None or process.last is None:
        return None
    for thread in process.last.threads[1:]:
        mark = kind_mark(thread.frames)
        call = next((t for t in program.pending if t.thread_id and t.thread_id == thread.python_id), None)
        if mark is None or mark.kind != "in-collective" or call is None:
            continue
        for name, frame in _held(thread.frames, sources):
            if name in wanted and _one_owner(name, frame, activity.where):
                return HeldLock(name, thread.name, frame, call)
    return None


def _wanted(where: Frame | None, sources: Sources) -> frozenset[str]:
    """What the `with` or the `.acquire()` at the line locks."""
    tree = sources.function(where.file, where.line) if where is not None else None
    if tree is None or where is None:
        return frozenset()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.With) and node.lineno == where.line:
            found.update(dotted(item.context_expr) for item in node.items)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.lineno == where.line:
            found.update([dotted(node.func.value)] if node.func.attr == "acquire" else [])
    return frozenset(found - {""})


def _held(stack: Stack, sources: Sources) -> list[tuple[str, Frame]]:
    """The names that the statements around the lines of a stack hold."""
    found = []
    for frame in user_stack(stack):
        tree = sources.function(frame.file, frame.line)
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.With) and node.lineno < frame.line and holds(node, frame.line):
                place = Frame(frame.file, node.lineno, frame.function)
                found += [(name, place) for item in node.items if (name := dotted(item.context_expr))]
    return found


def _one_owner(name: str, a: Frame, b: Frame) -> bool:
    if a.file != b.file:
        return False
    return not name.startswith("self.") or a.function.rpartition(".")[0] == b.function.rpartition(".")[0]
