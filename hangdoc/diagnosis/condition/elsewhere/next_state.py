"""Two states of a machine: the sides run different functions, or arms, by a state that an earlier step chose.

Example: rank 1 is in collect(), the others are in update(), and both came there by line 9:

    4  def collect(self):
    5      dist.all_reduce(self.count)
    6      return Phase.UPDATE if self.buffer.ready else Phase.COLLECT
    7  def run(self):
    8      while self.phase is not Phase.DONE:
    9          self.phase = {Phase.COLLECT: self.collect, Phase.UPDATE: self.update}[self.phase]()

No condition around the two calls parted them, but the one at line 6, by which one function sets both states.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hangdoc.diagnosis.condition.branch_point import BranchPoint, branch_point, is_rank_name
from hangdoc.diagnosis.condition.scores import PLAIN
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.stacks import Fork, fork
from hangdoc.diagnosis.source.guards import Guard, guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function, holds, last_name, names_in, text_of, walk
from hangdoc.model.process import Frame, Stack

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_MOST_WAYS = 16
"""Places that set one of the two states; chosen by hand."""
_DOUBT = "a step that makes no call, or one that skips it, looks the same"


@dataclass(frozen=True, slots=True)
class _States:
    """What decides between the sides' states: the names in it, and the text of each side's state."""

    names: frozenset[str]
    texts: tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Choice:
    """A condition by which one function sets the state of side ``guarded``, and the other one otherwise."""

    guard: Guard
    frame: Frame
    guarded: int


def chosen_before(sources: Sources, sides: tuple[Stack, Stack]) -> BranchPoint | None:
    """The condition by which one function alone chooses between the states that the sides are in; None where they are
    in one state, or several functions choose between them."""
    where = fork(*sides)
    states = _of_table(sources, where) or _of_arms(sources, where)
    if states is None:
        return None
    found: dict[tuple[str, int], _Choice] = {}
    trees = list(sources.user_trees())
    if sum(_leads_to(node, states) for _, tree in trees for node in walk(tree)) > _MOST_WAYS:
        return None
    for file, tree in trees:
        if not any(_leads_to(node, states) for node in walk(tree)):
            continue
        for function in (n for n in walk(tree) if isinstance(n, _Function)):
            choice = _choice_in(file, tree, function, states)
            if choice is not None:
                found[file, choice.guard.line] = choice
    if len(found) != 1:
        return None
    choice = next(iter(found.values()))
    return replace(branch_point(choice.guard, choice.frame, choice.guarded, PLAIN), doubt=_DOUBT)


def _leads_to(node: ast.AST, states: _States) -> bool:
    """True for a `return` of one of the states, and for an assignment of it."""
    if not isinstance(node, ast.Return | ast.Assign) or node.value is None:
        return False
    arms = [node.value.body, node.value.orelse] if isinstance(node.value, ast.IfExp) else [node.value]
    return any(text_of(arm) in states.texts for arm in arms)


def _of_table(sources: Sources, where: Fork) -> _States | None:
    """The states of two functions that one call took from a table: `self.table[self.phase]()`."""
    if not where.common or where.frames is None:
        return None
    caller, ran = where.mine[where.common - 1], where.frames
    tree = sources.function(caller.file, caller.line)
    if tree is None or is_library(caller) or plain(ran[0].function) == plain(ran[1].function):
        return None
    here = enclosing_function(tree, caller.line)
    taken = [n for n in walk(here) if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Load)]
    called = [n.func for n in walk(tree) if isinstance(n, ast.Call) and holds(n, caller.line)]
    held = {last_name(function) for function in called}
    set_to = {
        id(n.value): t.id for n in walk(here) if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)
    }
    for each in taken[:_MOST_WAYS]:
        if not any(each is function for function in called) and set_to.get(id(each)) not in held:
            continue
        for table in _tables(sources, each.value):
            by = {last_name(value): text_of(key) for key, value in zip(table.keys, table.values, strict=True) if key}
            texts = tuple(by.get(plain(frame.function).rpartition(".")[2], "") for frame in ran)
            if all(texts):
                return _States(frozenset(names_in(each.slice)), (texts[0], texts[1]))
    return None


def _tables(sources: Sources, owner: ast.expr) -> Iterator[ast.Dict]:
    """The dictionary itself, and those that the program sets its name to."""
    if isinstance(owner, ast.Dict):
        yield owner
    name = last_name(owner)
    for _, tree in sources.user_trees() if name else ():
        for node in walk(tree):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            value = getattr(node, "value", None)
            named = any(target is not None and last_name(target) == name for target in targets)
            if named and isinstance(value, ast.Dict) and isinstance(node, ast.Assign | ast.AnnAssign):
                yield value


def _of_arms(sources: Sources, where: Fork) -> _States | None:
    """The states of two arms of a `match`, or of `if … elif …` that compare one name."""
    both = where.within_function
    tree = sources.function(both[0].file, both[0].line) if both is not None else None
    if both is None or tree is None or is_library(both[0]):
        return None
    chained: set[ast.AST] = set()
    for node in walk(enclosing_function(tree, both[0].line)):
        subject, arms = _arms(node, chained) if node not in chained else (None, [])
        if subject is None:
            continue
        texts = [next((t for t, body in arms if any(holds(s, f.line) for s in body)), "") for f in both]
        if all(texts) and texts[0] != texts[1]:
            return _States(frozenset(names_in(subject)), (texts[0], texts[1]))
    return None


def _arms(node: ast.AST, chained: set[ast.AST]) -> tuple[ast.expr | None, list[tuple[str, list[ast.stmt]]]]:
    """What the statement compares, and each arm with what it compares it with. ``chained`` gets its further `elif`s,
    which are no statements of their own."""
    if isinstance(node, ast.Match):
        return node.subject, [(text_of(case.pattern), case.body) for case in node.cases]
    arms: list[tuple[str, list[ast.stmt]]] = []
    subject: ast.expr | None = None
    while isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and len(node.test.comparators) == 1:
        same = isinstance(node.test.ops[0], ast.Eq | ast.Is)
        if not same or (subject is not None and text_of(subject) != text_of(node.test.left)):
            break
        subject = node.test.left
        arms.append((text_of(node.test.comparators[0]), node.body))
        following = node.orelse
        if len(following) != 1 or not isinstance(following[0], ast.If):
            break
        node = following[0]
        chained.add(node)
    return subject, arms


def _choice_in(file: str, tree: ast.AST, function: _Function, states: _States) -> _Choice | None:
    """The condition in the function that sends it to one state or to the other, where it leads to both; none on the
    rank, by which the ranks' parts are chosen."""
    ways: list[tuple[int, int, Guard | None]] = []
    for node in walk(function):
        if not isinstance(node, ast.Return) and not _sets_state(node, states):
            continue
        value, line = getattr(node, "value", None), getattr(node, "lineno", 0)
        both = isinstance(value, ast.IfExp) and {text_of(value.body), text_of(value.orelse)} == set(states.texts)
        if not (both or text_of(value) in states.texts) or enclosing_function(tree, line) is not function:
            continue
        if both and isinstance(value, ast.IfExp):
            test, at = value.test, value.test.lineno
            guard = Guard("expression", at, text_of(test), True, names_in(test), (at, value.end_lineno or at))
            ways = [(states.texts.index(text_of(value.body)), at, guard), (-1, at, None)]
            break
        around = [g for g in guards(tree, line) if g.kind in ("if", "return") and states.names.isdisjoint(g.names)]
        ways.append((states.texts.index(text_of(value)), line, around[-1] if around else None))
        if len(ways) > _MOST_WAYS:
            return None
    for side, line, chosen in ways:
        if chosen is not None and any(other != side for other, _, _ in ways):
            ranks = any(map(is_rank_name, chosen.names))
            return None if ranks else _Choice(chosen, Frame(file, line, function.name), side)
    return None


def _sets_state(node: ast.AST, states: _States) -> bool:
    """True for an assignment to what decides, by its last name: `self.phase = …` where `machine.phase` is asked."""
    if not isinstance(node, ast.Assign):
        return False
    asked = {name.rpartition(".")[2] for name in states.names}
    return any(last_name(target) in asked for target in node.targets)
