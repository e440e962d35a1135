"""Conditions of the program under which a call gathers something from all ranks, or some ranks alone run a model that
all ranks share: where to look, if stacks alone show that the ranks parted earlier."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from hangdoc.diagnosis.condition.branch_point import is_of_rank_alone, is_rank_name
from hangdoc.diagnosis.condition.elsewhere.logged import is_alike
from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.diagnosis.source.guards import CONDITIONS, Guard, guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import last_name, walk
from hangdoc.model.message import Condition

_DEEPEST = 3
"""Functions that call each other, followed this far; chosen by hand."""


def conditions_of_sending(sources: Sources, calls: Iterable[str]) -> list[Condition]:
    """The user's conditions on the way to the program's calls of these names, a message's, that need not be alike on
    all ranks and do not ask for the rank.

    Example: `if block.max() < floor: return`, and after it `dist.send(block, nxt)` → that `if`.
    """
    return [condition for condition, on_rank in _on_the_way(sources, set(calls)).items() if not on_rank]


def _on_the_way(sources: Sources, wanted: set[str]) -> dict[Condition, bool]:
    """Condition on the way to calls of these names, or of the functions that make them → whether it asks for the
    rank."""
    found: dict[Condition, bool] = {}
    messages = wanted
    for _ in range(_DEEPEST):
        callers: set[str] = set()
        for file, function, call in (*_calls(sources, wanted), *_prepared(sources, messages)):
            callers.add(function.name)
            for guard in guards(function, call.lineno):
                tested = set(guard.names) - _counting(function, call.lineno)
                if guard.kind in CONDITIONS and tested and not _is_setting(function, guard):
                    on_rank = any(map(is_rank_name, tested)) and (is_of_rank_alone(guard) or _is_of_place(tested))
                    found[Condition(guard.condition, file, guard.line)] = on_rank
        wanted = {name for name in callers if sources.methods(name) < 2}  # which of several is called is not known
        messages = set()
    return found


def _is_of_place(tested: set[str]) -> bool:
    """True if these names are the rank and the number of ranks alone: {'self.rank', 'self.world'}."""
    return all(is_rank_name(name) or pattern("count_of_ranks").search(name) for name in tested)


def _is_setting(function: ast.AST, guard: Guard) -> bool:
    """True if the condition is the same on every rank, as far as its words tell: it names no rank, and tests a
    remainder, a setting of the job, or what trainers make alike."""
    if any(map(is_rank_name, guard.names)):
        return False
    tests = [getattr(n, "test", n) for n in walk(function) if getattr(n, "lineno", 0) == guard.line]
    if any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for test in tests for n in walk(test)):
        return True
    settings = [name for name in guard.names if pattern("job_setting").search(name)]
    rest = guard.condition
    for name in settings:  # what is compared with a setting need not be alike
        rest = rest.replace(name, "")
    return (bool(settings) and len(settings) == len(guard.names)) or is_alike(rest)


def _counting(function: ast.AST, line: int) -> set[str]:
    return {name for guard in guards(function, line) for name in guard.rounds}


def _prepared(sources: Sources, wanted: set[str]) -> Iterator[tuple[str, ast.FunctionDef, ast.Call]]:
    """The same of what is prepared for one of these: `P2POp(dist.isend, block, 1)`."""
    for each in _calls(sources, set(names("prepares_message"))) if wanted else ():
        given = [k.value for k in each[2].keywords if k.arg == "op"] or each[2].args[:1]
        if {last_name(node) for op in given for node in walk(op)} & wanted:
            yield each


def _calls(sources: Sources, wanted: set[str]) -> Iterator[tuple[str, ast.FunctionDef, ast.Call]]:
    """(file, function, call) of each call of those names in the user's functions."""
    seen: set[tuple[str, int, int]] = set()
    for file, tree in sources.user_trees():
        functions = (n for n in walk(tree) if isinstance(n, ast.FunctionDef))
        for function in functions:
            for node in walk(function):
                if isinstance(node, ast.Call) and last_name(node.func) in wanted:
                    place = (file, node.lineno, node.col_offset)
                    if place not in seen:
                        seen.add(place)
                        yield file, function, node
