"""A loop that only counts, from a start to a bound: where ranks leave it in different rounds, one of these two differs.

Example: `while self.step < self.total:`, with `self.step += 1` in its body and `self.step = load_latest()["step"]`
before it. Rank 3 is in it with self.step = 28 and self.total = 40, while the others are past it: rank 3 began at
another step, which comes from load_latest().

A `for` over a loader counts nothing itself, but a name that each of its rounds adds to may: where that differs by more
than the rounds that the ranks made, they began elsewhere in what the loop goes over (``began_elsewhere``).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.elsewhere.answers import answers
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.source.evaluate import value_of
from hangdoc.diagnosis.source.loops import counted_from, ways_out
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, enclosing_function, last_name, names_in, text_of, walk
from hangdoc.diagnosis.source.values import SideRanks
from hangdoc.model.message import Condition

_MOST_SETTINGS = 2
"""Lines that set the start, told in one report; chosen by hand."""


@dataclass(frozen=True, slots=True)
class CountingLoop:
    """``start`` and ``bound`` as the source writes them, '' for a constant; ``left``: rank → the rounds that it has to
    go after this one, where its values show that; ``seen``: these values, or those of the start, where they differ."""

    start: str
    bound: str
    left: dict[int, int]
    seen: tuple[tuple[str, dict[int, str]], ...]
    set_at: tuple[Condition, ...]
    """The lines that set the start to what was loaded or computed."""
    handlers: tuple[Condition, ...]
    """The `except` clauses that go on, in the functions asked there."""
    decided_at: Condition | None = None
    """What decides where ranks begin that began elsewhere; None for a loop that counts by itself."""


def counting_loop(case: Case, loop: BranchPoint, inside: tuple[int, ...]) -> CountingLoop | None:
    """The loop as one that only counts; None for other loops, and for one whose start is the same on all ranks.

    ``inside``: the ranks that are in it.
    """
    tree = case.sources.function(loop.file, loop.guard.line) if not loop.of_library else None
    counted = counted_from(tree, loop.guard.line) if tree is not None else None
    if tree is None or counted is None or ways_out(tree, loop.guard.line):
        return None
    name, start, bound = counted
    settings = list(_settings(case.sources, loop, tree, start))[:_MOST_SETTINGS]
    if not settings:
        return None
    values = {each: case.values.of(loop.file, loop.function, each) for each in (name, *names_in(bound))}
    rest = ast.BinOp(ast.BinOp(bound, ast.Sub(), ast.Constant(1)), ast.Sub(), ast.parse(name, mode="eval").body)
    left = {}
    for rank in inside:
        found = value_of(rest, {each: seen[rank] for each, seen in values.items() if rank in seen})
        if found.isdecimal():
            left[rank] = int(found)
    began = {each: case.values.of(loop.file, loop.function, each) for each in names_in(start) if each != name}
    seen = [(each, shown) for each, shown in began.items() if len(set(shown.values())) > 1]
    seen = seen or [(each, {r: v for r, v in shown.items() if r in left}) for each, shown in values.items()]
    return CountingLoop(
        text_of(start),
        "" if isinstance(bound, ast.Constant) else text_of(bound),
        left,
        tuple(each for each in seen if each[1]),
        tuple(Condition(text, file, line) for file, line, text, _ in settings if text),
        tuple(dict.fromkeys(each for *_, handlers in settings for each in handlers)),
    )


def began_elsewhere(case: Case, loop: BranchPoint, ranks: SideRanks, calls_apart: int | None) -> CountingLoop | None:
    """The `for` as one whose ranks began elsewhere in what it goes over, by a count of its rounds; None for others.

    ``calls_apart``: how many calls of the loop a side made more than the other; None where that is not known, and a
    count that agrees on all ranks has to tell. Example: `for batch in self.loader: ⏎ … ⏎ self.step += 1`, with
    self.step = 30 on rank 0 and 19 on rank 1, 20 calls against 19, and `self.step = restore(self.loader)` before it.
    """
    tree = case.sources.function(loop.file, loop.guard.line) if not loop.of_library else None
    at = [n for n in walk(tree) if isinstance(n, ast.For) and n.lineno == loop.guard.line] if tree else []
    if tree is None or not at or counted_from(tree, loop.guard.line) is not None or ways_out(tree, loop.guard.line):
        return None
    shown = {name: case.values.of(loop.file, loop.function, name) for name in _counted_in(at[0])}
    spans = {name: _apart(seen, ranks) for name, seen in shown.items()}
    rounds = calls_apart if calls_apart is not None else min((n for n in spans.values() if n is not None), default=None)
    for name, apart in spans.items():
        if apart is None or rounds is None or apart <= rounds + 1:
            continue
        start = ast.parse(name, mode="eval").body
        found = {each[:2]: each for each in _settings(case.sources, loop, tree, start)}
        settings = [each for each in found.values() if _moves(case.sources, at[0], name, each)]
        if not settings or len(settings) > _MOST_SETTINGS:
            continue
        set_at = tuple(Condition(text, file, line) for file, line, text, _ in settings)
        handlers = tuple(dict.fromkeys(each for *_, handlers in settings for each in handlers))
        tests = [t for each in set_at for answer in answers(case.sources, each.file, each.line) for t in answer.tests]
        decided_at = tests[0] if len(tests) == 1 else set_at[0]
        return CountingLoop(name, "", {}, (), set_at, handlers, decided_at)
    return None


def _counted_in(loop: ast.For) -> list[str]:
    """What each round adds one to, under no condition."""
    added = (n for n in loop.body if isinstance(n, ast.AugAssign) and isinstance(n.op, ast.Add))
    ones = (n for n in added if isinstance(n.value, ast.Constant) and n.value.value == 1)
    return [name for name in (dotted(n.target) for n in ones) if name]


def _apart(seen: dict[int, str], ranks: SideRanks) -> int | None:
    """How far the nearest ranks of the two sides are apart; None where one of them does not show the number."""
    mine, theirs = ([seen.get(rank, "") for rank in side] for side in ranks)
    if not mine or not theirs or not all(each.isdecimal() for each in (*mine, *theirs)):
        return None
    both = sorted({(int(each), side) for side, shown in enumerate((mine, theirs)) for each in shown})
    return min(later - earlier for (earlier, a), (later, b) in pairwise(both) if a != b)


def _moves(sources: Sources, loop: ast.For, name: str, setting: tuple[str, int, str, list[Condition]]) -> bool:
    """True if the loop is given the count, or what sets the count is given, or uses, what the loop goes over."""
    if name in names_in(loop.iter):
        return True
    over = set(names_in(loop.iter))
    file, line, *_ = setting
    tree = sources.function(file, line)
    calls = [n for n in walk(tree) if isinstance(n, ast.Call) and n.lineno == line] if tree is not None else []
    given = {dotted(each) for call in calls for each in (*call.args, *(k.value for k in call.keywords))}
    found = [list(sources.user_functions(last_name(call.func))) for call in calls if last_name(call.func)]
    used = {dotted(n) for each in found if len(each) == 1 for n in walk(each[0][1])}
    return not over.isdisjoint(given | used)


def _settings(
    sources: Sources, loop: BranchPoint, tree: ast.AST, start: ast.expr
) -> Iterator[tuple[str, int, str, list[Condition]]]:
    """(file, line, text, handlers) of each line that gives the start a value which a call or a lookup yields."""
    name = last_name(start)
    if not name:
        yield from [(loop.file, start.lineno, "", _handlers_of(sources, tree, start))] if _is_computed(start) else []
        return
    own = isinstance(start, ast.Name)
    for file, each in [(loop.file, tree)] if own else sources.user_trees():
        for node in walk(enclosing_function(tree, loop.guard.line) if own else each):
            if not isinstance(node, ast.Assign) or not _is_computed(node.value):
                continue
            if (not own or node.lineno < loop.guard.line) and name in map(last_name, node.targets):
                here = enclosing_function(each, node.lineno)
                yield file, node.lineno, text_of(node), _handlers_of(sources, here, node.value)


def _is_computed(value: ast.expr) -> bool:
    return any(isinstance(node, ast.Call | ast.Subscript) for node in walk(value))


def _handlers_of(sources: Sources, here: ast.AST, value: ast.expr) -> list[Condition]:
    """The `except` clauses that raise nothing, in the user's functions that the value is got from.

    Example: `state["step"]`, with `state = store.load_latest()` before it → those of load_latest().
    """
    names = {node.id for node in walk(value) if isinstance(node, ast.Name)}
    sets = [n.value for n in walk(here) if isinstance(n, ast.Assign) and names & set(map(last_name, n.targets))]
    called = [n for each in (value, *sets) for n in walk(each) if isinstance(n, ast.Call)]
    found = []
    for name in dict.fromkeys(last_name(call.func) for call in called):
        functions = list(sources.user_functions(name)) if name else []
        for file, function in functions if len(functions) == 1 else ():
            handlers = [n for n in walk(function) if isinstance(n, ast.ExceptHandler)]
            quiet = [h for h in handlers if not any(isinstance(n, ast.Raise) for n in walk(h))]
            found += [Condition(f"except {text_of(h.type)}:" if h.type else "except:", file, h.lineno) for h in quiet]
    return found
