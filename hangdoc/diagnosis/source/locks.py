"""Locks as the source shows them: which a line acquires, and which the statements around a line hold."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import same_function, user_stack
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import (
    LOOPS,
    dotted,
    holds,
    last_name,
    walk,
)
from hangdoc.model.process import Frame, Process, Stack, Thread

_OVER_AND_OVER = (*LOOPS, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, slots=True)
class Holder:
    """The lock ``name``, as the source has it, is held by a thread since ``frame``."""

    name: str
    thread: Thread
    frame: Frame


def wanted(where: Frame | None, sources: Sources) -> frozenset[str]:
    """What the `with` or the `.acquire()` at the line locks. Example: `with self.lock, open(p):` → {'self.lock'}."""
    tree = sources.function(where.file, where.line) if where is not None else None
    return _wanted_at(tree, where.line) if tree is not None and where is not None else frozenset()


@lru_cache(maxsize=4096)
def _wanted_at(tree: ast.AST, line: int) -> frozenset[str]:
    """The same of a line; kept, since many ranks are at one."""
    found: set[str] = set()
    for node in walk(tree):
        if isinstance(node, ast.With) and node.lineno == line:
            found.update(name for item in node.items for name in _locks_of(item.context_expr))
        elif isinstance(node, ast.Call) and node.lineno == line:
            found.add(_acquired(node))
    return frozenset(found - {""})


def holders(process: Process, where: Frame | None, sources: Sources) -> list[Holder]:
    """The threads of the process that hold a lock that the line acquires, the main thread last."""
    locks = wanted(where, sources)
    if not locks or where is None or process.last is None:
        return []
    return [
        Holder(name, thread, frame)
        for thread in (*process.last.threads[1:], *process.last.threads[:1])
        for name, frame in held(thread.frames, sources)
        if any(
            _one_lock((name, frame), (want, where)) or _is_the_only((name, frame), (want, where), sources)
            for want in locks
        )
    ]


def _locks_of(context: ast.expr) -> list[str]:
    """What a `with` locks: 'self.lock' of `self.lock`, and of `self.lock if self.rank == 0 else nullcontext()`."""
    arms = [context.body, context.orelse] if isinstance(context, ast.IfExp) else [context]
    return [name for arm in arms if (name := dotted(arm))]


def _is_the_only(a: tuple[str, Frame], b: tuple[str, Frame], sources: Sources) -> bool:
    """True if both names end alike, and the program makes a single lock of that name, which one object gets from
    another: `self.guard = threading.Lock()` in one class, `self.guard = guard` in another one. False of what one
    function calls by two names, `with source.lock: ⏎ with target.lock:`, and of a class of which several are made."""
    (name, mine), (other, theirs) = a, b
    last = name.rpartition(".")[2]
    if last != other.rpartition(".")[2] or (name != other and same_function(mine, theirs)):
        return False
    made = {(file, line): tree for file, tree in sources.user_trees() for line in _lines_that_make(last, tree)}
    return len(made) == 1 and all(_is_in_one_object(tree, line, sources) for (_, line), tree in made.items())


def _is_in_one_object(tree: ast.AST, line: int, sources: Sources) -> bool:
    """False if the line is in a class of which the program makes several objects, by several calls or in a loop."""
    around = [n for n in walk(tree) if isinstance(n, ast.ClassDef) and holds(n, line)]
    calls = sources.user_calls(max(around, key=lambda each: each.lineno).name) if around else []
    loops = [n for each in calls for n in walk(each.function) if isinstance(n, _OVER_AND_OVER)]
    return len(calls) < 2 and not any(holds(loop, each.call.lineno) for loop in loops for each in calls)


def _lines_that_make(name: str, tree: ast.AST) -> Iterator[int]:
    """The lines that make a lock whose name ends so: `self.rank, self.guard = rank, threading.Lock()`."""
    for node in (n for n in walk(tree) if isinstance(n, ast.Assign)):
        for each in node.targets:
            pairs = [(each, node.value)]
            if isinstance(each, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(each.elts, node.value.elts, strict=False))
            made = (t for t, v in pairs if isinstance(v, ast.Call) and last_name(v.func) in names("makes_lock"))
            yield from (node.lineno for target in made if last_name(target) == name)


def _one_lock(a: tuple[str, Frame], b: tuple[str, Frame]) -> bool:
    """True if (name, frame) and (name, frame) mean one lock, by their owners' classes.

    Example: `self.lock` in class Progress and `self.progress.lock` in another class.
    """
    if a[0] == b[0]:
        return one_owner(a[0], a[1], b[1])
    classes = [_owner(*each) for each in (a, b)]
    return a[0].rpartition(".")[2] == b[0].rpartition(".")[2] and classes[0] == classes[1] != ""


def _owner(name: str, frame: Frame) -> str:
    """The class of the object that has the lock, as far as names and locals show it, in lower case."""
    owner = name.rpartition(".")[0]
    if owner == "self":
        return frame.function.rpartition(".")[0].rpartition(".")[2].lower()
    value = next((each.value for each in frame.locals if each.name == owner), "")
    return (value.strip("<>") or owner.rpartition(".")[2]).replace("_", "").lower()


def held(stack: Stack, sources: Sources) -> list[tuple[str, Frame]]:
    """(lock, the line that acquired it) of the locks that the statements around a stack hold, innermost first.

    Example: in `with self.lock:` at train.py:3, a frame at train.py:5 → [('self.lock', train.py:3)].
    """
    found = []
    for frame in user_stack(stack):
        tree = sources.function(frame.file, frame.line)
        taken = _taken(tree, frame.line) if tree is not None else ()
        found += [(name, replace(frame, line=line)) for name, line in taken]
    return found


def held_since(where: Frame, holder: Frame, sources: Sources) -> bool:
    """True if ``where`` is at the head of a `with` in whose body ``holder`` is, both in one function.

    Example: in `with Lock(path): ⏎ dist.barrier()`, one rank is at the `with` and another at the barrier.
    """
    tree = sources.function(where.file, where.line) if same_function(where, holder) else None
    return tree is not None and any(
        isinstance(node, ast.With)
        and any(holds(item.context_expr, where.line) for item in node.items)
        and any(holds(statement, holder.line) for statement in node.body)
        for node in walk(tree)
    )


def polls_for_lock(stack: Stack, sources: Sources) -> bool:
    """True if the innermost user function tries to take a lock file: it calls flock, or creates a file that must be
    new."""
    where = next(iter(user_stack(stack)), None)
    tree = sources.function(where.file, where.line) if where is not None else None
    return tree is not None and not _words_in(tree).isdisjoint(names("takes_file_lock"))


@lru_cache(maxsize=4096)
def _words_in(tree: ast.AST) -> frozenset[str]:
    return frozenset(getattr(node, "attr", getattr(node, "id", "")) for node in walk(tree))


def _taken(tree: ast.AST, line: int) -> Iterator[tuple[str, int]]:
    """(lock, line that acquired it) of the locks that the statements around ``line`` hold."""
    for node in walk(tree):
        if isinstance(node, ast.With) and node.lineno < line and holds(node, line):
            yield from ((name, node.lineno) for item in node.items for name in _locks_of(item.context_expr))
        for body in (getattr(node, part, None) for part in ("body", "orelse", "finalbody")):
            if isinstance(body, list) and any(_spans(statement, line) for statement in body):
                yield from _acquired_before(body, line)


def _spans(node: ast.AST, line: int) -> bool:
    return getattr(node, "lineno", line + 1) <= line <= getattr(node, "end_lineno", line - 1)


def _acquired_before(body: list[ast.stmt], line: int) -> Iterator[tuple[str, int]]:
    """(lock, line) of `x.acquire()` as a statement before the line, in the same block, with no `x.release()` since."""
    taken: dict[str, int] = {}
    for statement in body:
        if statement.lineno >= line or _spans(statement, line):
            break
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            name = _acquired(statement.value)
            taken.update({name: statement.lineno} if name else {})
        calls = (node for node in walk(statement) if isinstance(node, ast.Call))
        for released in {_receiver(call, "release") for call in calls}:
            taken.pop(released, None)
    yield from taken.items()


def _acquired(call: ast.Call) -> str:
    return _receiver(call, "acquire")


def _receiver(call: ast.Call, method: str) -> str:
    """'self.lock' of `self.lock.acquire()`."""
    function = call.func
    return dotted(function.value) if isinstance(function, ast.Attribute) and function.attr == method else ""


def one_owner(name: str, a: Frame, b: Frame) -> bool:
    """True if two lines mean one lock by its name: the same file and, for an attribute of ``self``, the same class."""
    if a.file != b.file:
        return False
    return not name.startswith("self.") or a.function.rpartition(".")[0] == b.function.rpartition(".")[0]
