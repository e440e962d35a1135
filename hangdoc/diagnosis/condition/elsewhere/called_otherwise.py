"""One call that ran different functions on the two sides: its object, or the function itself, is another one there.

The sides then diverged where that object was chosen, at no condition in either function. Example, with rank 3 in
Scaled.reduce() and the others in Plain.reduce():

    59  self.reducer = REGISTRY[cfg["reducer"]](world)
    66  self.reducer.reduce(grads)

Both sides must have come to the call in the same round of all loops around it, or what it calls must stay: a side that
has gone on to `self.phase = Main()` one call too early is in another function, too, and another line sent it there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import Token, distinct
from hangdoc.diagnosis.condition.branch_point import is_rank_name
from hangdoc.diagnosis.condition.stack_comparison import within_one_function
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.stacks import Fork, fork, same_place, user_stack
from hangdoc.diagnosis.source.guards import guards, loops_around
from hangdoc.diagnosis.source.queries import (
    assignments,
    binds,
    first_assigned_value,
)
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, enclosing_function, holds, last_name, names_in, text_of, walk
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame, Stack


@dataclass(frozen=True, slots=True)
class CalledOtherwise:
    """``chosen``: the line that chose what is called, the call itself where that is not known; ``name``: what it is
    called by; ``is_call``: ``chosen`` is the call."""

    name: str
    chosen: Condition
    is_call: bool
    by_rank: bool = False
    """A test of the rank chooses it there: `Leader() if rank == 0 else Follower()`."""


def called_otherwise(
    sources: Sources, sides: tuple[Stack, Stack], issued: Iterable[Sequence[Stack]] = (), *, one_round: bool = False
) -> CalledOtherwise | None:
    """The call at which two stacks enter different functions; None where the line may have made two calls, or where the
    sides may be in different rounds of a loop around it, in which it calls one thing after the other.

    ``issued``: of each rank, the stacks that it has issued calls from; ``one_round``: the sides are surely in one round
    of all loops around the call. Example: as above → 'self.reducer', chosen at
    line 59.
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
    if not one_round and any(_has_run_both(sources, stacks, caller, ran) for stacks in issued):
        return None
    if not one_round and _goes_round(sources, sides[0], where):
        return None
    name = dotted(chosen_by) or text_of(chosen_by)
    made = _made(sources, tree, caller, chosen_by)
    return CalledOtherwise(name, made, made.line == caller.line, _is_by_rank(sources, made))


def _is_by_rank(sources: Sources, chosen: Condition) -> bool:
    tree = sources.function(chosen.file, chosen.line)
    tests = (n.test for n in walk(tree) if isinstance(n, ast.IfExp) and n.lineno == chosen.line) if tree else ()
    around = [g for g in guards(tree, chosen.line) if g.kind == "if"] if tree is not None else []
    named = [*(name for test in tests for name in names_in(test)), *(name for g in around for name in g.names)]
    return any(map(is_rank_name, named))


def other_function(case: Case, gap: Gap, sides: tuple[Stack, Stack]) -> CalledOtherwise | None:
    """The same for the two sides of a gap, by what their ranks have called before.

    None, too, where each side had made its very call in an earlier round: then it is theirs to call different things,
    as the stages of a pipeline do.
    """
    if all(token is not None and _had_made(case, token) for token in (gap.mine, gap.theirs)):
        return None
    issued = [program.recording.issued_from for program, _ in distinct(case.programs)]
    waiting = all(token is not None and token.pending for token in (gap.mine, gap.theirs))
    return called_otherwise(case.sources, sides, issued, one_round=waiting and _are_in_one_round(case, sides))


def _are_in_one_round(case: Case, sides: tuple[Stack, Stack]) -> bool:
    """True if what counts each loop around the line that both came by shows one number on all ranks, and no library is
    above it."""
    where = fork(*sides)
    if not where.common or user_stack(sides[0]) != sides[0][-len(where.mine) :]:
        return False
    for frame in where.mine[: where.common]:
        tree = case.sources.function(frame.file, frame.line)
        loops = loops_around(tree, frame.line)
        counts = [[case.values.of(frame.file, frame.function, name) for name in g.rounds] for g in loops]
        if tree is None or not all(any(map(partial(_is_one_number, case), each)) for each in counts):
            return False
    return True


def _is_one_number(case: Case, seen: dict[int, str]) -> bool:
    return len(seen) == len(case.seen) and len(set(seen.values())) == 1 and next(iter(seen.values())).isdigit()


def _had_made(case: Case, call: Token) -> bool:
    """True if the rank of the call made it from the same place before."""
    program = case.programs.get(call.rank)
    return program is not None and any(each.site == call.site for each in program.tokens[: max(call.order, 0)])


def _has_run_both(sources: Sources, stacks: Sequence[Stack], caller: Frame, ran: tuple[Frame, Frame]) -> bool:
    """True if one rank has called from both functions by that line: what it calls there changes with time."""
    entered = set()
    for stack in stacks:
        way = user_stack(stack)
        entered |= {_start(sources, inner) for inner, outer in pairwise(way) if same_place(outer, caller)}
    return {_start(sources, frame) for frame in ran} <= entered


def _start(sources: Sources, frame: Frame) -> tuple[str, str, int]:
    """The function that the frame is in: its file, name and first line."""
    tree = sources.function(frame.file, frame.line)
    first = getattr(enclosing_function(tree, frame.line), "lineno", 0) if tree is not None else 0
    return frame.file, plain(frame.function), first


def _goes_round(sources: Sources, stack: Stack, where: Fork) -> bool:
    """True unless no loop can be around a line that both sides have come by: neither the user's nor a library's."""
    caller, outermost = where.mine[where.common - 1], where.mine[0]
    first, last = (next(i for i, f in enumerate(stack) if f is frame) for frame in (caller, outermost))
    return any(_is_in_loop(sources, frame) for frame in stack[first : last + 1])


def _is_in_loop(sources: Sources, frame: Frame) -> bool:
    tree = sources.function(frame.file, frame.line)
    in_expression = plain(frame.function).startswith("<") and plain(frame.function) != "<module>"
    return tree is None or in_expression or bool(loops_around(tree, frame.line))


def _chosen_by(tree: ast.AST, line: int, functions: tuple[str, str]) -> ast.expr | None:
    """What the one call at the line takes its function from: `self.reducer` of `self.reducer.reduce()`, which is a
    method of both sides; `HANDLERS[kind]` of `HANDLERS[kind]()`; a local variable that holds a function."""
    calls = [node for node in walk(tree) if isinstance(node, ast.Call) and holds(node, line)]
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
