"""What the user's code tells a library about communicating: the context around a call (no_sync), and flags.

Example: `dcp.save(state, no_dist=self.local_only)` communicates where the flag is False, whatever stands around it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from hangdoc.diagnosis.condition.elsewhere.callables import set_to
from hangdoc.diagnosis.frames.landmarks import Role, has_role
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.guards import Guard, guards, quiet_guard
from hangdoc.diagnosis.source.queries import contexts_around
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function, function_name, holds, last_name, names_in, text_of, walk
from hangdoc.model.process import Frame, Stack


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag that a library is given, as a condition at ``where``. ``line`` and ``level`` are those of the frame on the
    way to the call, ``rounds`` counts the rounds of the loops around the flag."""

    guard: Guard
    where: Frame
    line: int
    level: int
    rounds: frozenset[str]


def contexts_chosen(sources: Sources, way: Stack, at: int) -> Iterator[tuple[Guard, str, Frame, int]]:
    """(condition, its file, the frame, its level) of each context around a frame of ``way``, outermost first, from its
    frame ``at`` on, where the user's code chooses the context, there or in the function that makes it.

    Example: `with self.context(model): loss.backward()`, and context() returns `nullcontext() if self.last else
    model.no_sync()` → 'if self.last'.
    """
    for level, frame in enumerate(way[at:], at):
        tree = sources.function(frame.file, frame.line) if not is_library(frame) else None
        for context in contexts_around(tree, frame.line) if tree is not None else ():
            name = last_name(context.func) if isinstance(context, ast.Call) else ""
            for file, made in sources.user_functions(name) if name else [(frame.file, context)]:
                guard = quiet_guard(made)
                if guard is not None:
                    yield guard, file, frame, level


def flags_chosen(sources: Sources, stack: Stack, way: Stack, at: int) -> Iterator[Flag]:
    """Each flag that the user's code gives a library on ``way``, from its frame ``at`` on, or sets for the backward
    that ``stack`` is in; none that is a constant.

    Examples: 'no_dist=self.local_only'; 'model.require_backward_grad_sync = self.window.full()'.
    """
    users = [(level, frame) for level, frame in enumerate(way[at:], at) if not is_library(frame)]
    for level, frame in users:
        tree = sources.function(frame.file, frame.line)
        here = enclosing_function(tree, frame.line) if tree is not None else None
        for word in _given_at(here, frame.line) if here is not None else ():
            text = f"{word.arg}={text_of(word.value)}"
            yield _flag(sources, frame.file, word, word.value, text, (level, frame))
    if users and has_role(stack, Role.BACKWARD):
        for file, tree in sources.user_trees():
            for statement, value in _set_in(tree):
                yield _flag(sources, file, statement, value, text_of(statement), users[-1])


def _flag(
    sources: Sources, file: str, node: ast.keyword | ast.stmt, value: ast.expr, text: str, at: tuple[int, Frame]
) -> Flag:
    guard = Guard(
        "expression", node.lineno, text, True, names_in(value), (node.lineno, value.end_lineno or node.lineno)
    )
    tree = sources.function(file, node.lineno)
    around = guards(tree, node.lineno) if tree is not None else []
    rounds = frozenset(name for each in around if each.kind == "loop" for name in each.rounds)
    function = function_name(tree, node.lineno) if tree is not None else ""
    return Flag(guard, Frame(file, node.lineno, function), at[1].line, at[0], rounds)


def _given_at(here: ast.AST, line: int) -> Iterator[ast.keyword]:
    """The flags that the call at the line is given, itself or in what an argument of it was made with; and those of the
    contexts around it."""
    calls = [node for node in walk(here) if isinstance(node, ast.Call) and holds(node, line)]
    for call in calls:
        yield from _flags_of(call)
        for given in (*call.args, *(word.value for word in call.keywords)):
            made = list(set_to(here, given.id).values()) if isinstance(given, ast.Name) else []
            if len(made) == 1 and isinstance(made[0], ast.Call):
                yield from _flags_of(made[0])
    for node in walk(here):
        if isinstance(node, ast.With | ast.AsyncWith) and any(holds(each, line) for each in node.body):
            for made_by in (item.context_expr for item in node.items):
                if isinstance(made_by, ast.Call) and last_name(made_by.func) in names("quiet_round"):
                    yield from _flags_of(made_by)


def _flags_of(call: ast.Call) -> Iterator[ast.keyword]:
    for word in call.keywords:
        if word.arg in names("tells_to_communicate") and names_in(word.value) and last_name(word.value) != word.arg:
            yield word


def _set_in(tree: ast.AST) -> Iterator[tuple[ast.stmt, ast.expr]]:
    """Each statement that turns the synchronisation of gradients on or off by a value."""
    for node in walk(tree):
        if isinstance(node, ast.Assign) and last_name(node.targets[0]) in names("quiet_round"):
            value: ast.expr | None = node.value if isinstance(node.targets[0], ast.Attribute) else None
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and node.value.args:
            called = node.value.func
            quiet = isinstance(called, ast.Attribute) and called.attr in names("turns_sync")
            value = node.value.args[0] if quiet else None
        else:
            continue
        if value is not None and not isinstance(value, ast.Name) and names_in(value):
            yield node, value
