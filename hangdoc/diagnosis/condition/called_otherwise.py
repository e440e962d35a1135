"""One call that ran different functions on the two sides: its object, or the function itself, is another one there.

The sides then diverged where that object was chosen, at no condition in either function. Example, with rank 3 in
Scaled.reduce() and the others in Plain.reduce():

    59  self.reducer = REGISTRY[cfg["reducer"]](world)
    66  self.reducer.reduce(grads)
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from hangdoc.diagnosis.condition.stack_comparison import within_one_function
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.stacks import fork
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.queries import assignments, assignments_beside, binds, first_assigned_value
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, enclosing_function, holds, last_name, names_in, text_of
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame, Stack


@dataclass(frozen=True, slots=True)
class CalledOtherwise:
    """``chosen``: the line that chose what is called, the call itself where that is not known; ``name``: what it is
    called by; ``is_call``: ``chosen`` is the call."""

    name: str
    chosen: Condition
    is_call: bool


def called_otherwise(sources: Sources, sides: tuple[Stack, Stack]) -> CalledOtherwise | None:
    """The call at which two stacks enter different functions; None where the line may have made two calls, or where a
    loop around it calls one item after the other.

    Example: as above → 'self.reducer', chosen at line 59.
    """
    where = fork(*sides)
    if not where.common or where.frames is None or within_one_function(sources, where) is not None:
        return None
    caller, ran = where.mine[where.common - 1], where.frames
    tree = sources.function(caller.file, caller.line)
    if tree is None or any(is_library(f) for f in (caller, *ran)) or plain(ran[0].function).startswith("<"):
        return None
    chosen_by = _chosen_by(tree, caller.line, (plain(ran[0].function), plain(ran[1].function)))
    if chosen_by is None:
        return None
    name = dotted(chosen_by) or text_of(chosen_by)
    counters = {n for g in guards(tree, caller.line) if g.kind == "loop" for n in g.counters}
    # What is called is an item of a loop, or chosen by one: the sides may be at different items of equal ones.
    beside = assignments_beside(tree, caller.line, name)
    chosen = [chosen_by, *(node for node in ast.walk(tree) if getattr(node, "lineno", 0) in beside)]
    if counters & {part.partition(".")[0] for node in chosen for part in names_in(node)}:
        return None
    made = _made(sources, tree, caller, chosen_by)
    return CalledOtherwise(name, made, made.line == caller.line)


def _chosen_by(tree: ast.AST, line: int, functions: tuple[str, str]) -> ast.expr | None:
    """What the one call at the line takes its function from: `self.reducer` of `self.reducer.reduce()`, which is a
    method of both sides; `HANDLERS[kind]` of `HANDLERS[kind]()`; a local variable that holds a function."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and holds(node, line)]
    if functions[0] == functions[1]:
        own = [c.func for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr == functions[0]]
        return own[0].value if len(own) == 1 and dotted(own[0].value) not in ("self", "cls") else None
    if any(last_name(each.func) in functions for each in calls):
        return None
    held = [
        each.func
        for each in calls
        if isinstance(each.func, ast.Subscript) or (isinstance(each.func, ast.Name) and binds(tree, line, each.func.id))
    ]
    return held[0] if len(held) == 1 else None


def _made(sources: Sources, tree: ast.AST, caller: Frame, chosen_by: ast.expr) -> Condition:
    """The only line that assigns to the name, in the function or, to an attribute, in the file; else the call's."""
    name = dotted(chosen_by)
    call = Condition(sources.line(caller.file, caller.line) or text_of(chosen_by), caller.file, caller.line)
    if not name:
        return call
    trees = [each for _, each in sources.trees(caller.file)] if "." in name else [enclosing_function(tree, caller.line)]
    made = {(line, first_assigned_value(each, line)) for each in trees for line in assignments(each, name)}
    if len({line for line, _ in made}) != 1:
        return call
    line, text = next(iter(made))
    return Condition(_as_written(sources, caller.file, line, text), caller.file, line) if text else call


def _as_written(sources: Sources, file: str, line: int, text: str) -> str:
    """The line itself, where the whole statement is on it; else ``text``, which is the statement on one line."""
    written = sources.line(file, line) or ""
    try:
        return written if ast.unparse(ast.parse(written)) and len(written) <= len(text) else text
    except (SyntaxError, ValueError):
        return text
