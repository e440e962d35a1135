"""The conditions whose suites have left something behind on one side alone.

The statement that notes a skipped batch is on no stack any more, but what it changed is still there. Example:

    41  def keep(self, sample):
    42      if sample.ratio > self.limit:
    43          self.rejected.append(sample.key)     # len(rejected) = 1 on rank 2, 0 on the others
    44          return False

→ `if sample.ratio > self.limit:` was taken on rank 2 alone.

Only what grows and is never taken back counts: a number that is added to, a container that gets items, a flag that is
set once. One side has to have nothing of it, on each of its ranks: what both have may differ because one is a round
ahead. Neither counts what the side did after the call that the other one waits in.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hangdoc.diagnosis.bounds import COMPARED, DEEPEST, NAMED
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.names import is_rank_name, names, pattern
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS, Guard, guards, loops_around
from hangdoc.diagnosis.source.queries import without_handing_on
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function, has_blocks, holds, last_name, walk
from hangdoc.diagnosis.source.values import SideRanks
from hangdoc.model.process import Frame, Stack

_NOTHING = frozenset({"0", "False", "None"})
_JUMPS = (ast.Return, ast.Continue, ast.Break, ast.Raise)
_MADE = frozenset({"__init__", "__post_init__", "setup", "reset"})
"""Where an object is made, or begins anew."""


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """``ranks`` have been under ``guard``, with the truth that it then had, and the others have not."""

    file: str
    function: str
    guard: Guard
    line: int
    """Of the statement under it that left something behind, or of the call that led there."""
    side: int
    """Side 0, the culprits, or side 1."""
    owner: str = ""
    """The class, or the function or module, that has ``name``."""
    name: str = ""
    """What was left: 'dropped', 'len(rejected)'; '' where only the counters show it, see ``ran_alone``."""
    values: tuple[tuple[int, str], ...] = ()
    sets: frozenset[str] = frozenset()
    """The last names of what else the statements beside it set."""
    jumps: bool = False
    """These statements leave a function or a round of a loop, or raise."""

    @property
    def leads_out(self) -> bool:
        """True if who went one way here left the function, or a round of a loop, and who went the other way did not."""
        return self.jumps or self.guard.kind == "return"


@dataclass(frozen=True, slots=True)
class _Change:
    """A statement, in a captured piece of the file."""

    file: str
    tree: ast.AST
    node: ast.stmt


@dataclass(frozen=True, slots=True)
class _Statement:
    """A statement that changes something, and whether it adds to it. ``classes``: around it, where it changes an
    attribute of `self`."""

    change: _Change
    adds: bool
    classes: frozenset[str]


def left_behind(case: Case, ranks: SideRanks) -> list[LeftBehind]:
    """What one side alone has left behind, with the condition under which it did."""
    marks = list(_of_one_side(case, ranks))[:COMPARED]
    statements = _statements(case.sources) if marks else {}
    found: dict[tuple[str, int, str], LeftBehind] = {}
    stacks = [[user_stack(case.activities[r].stack) for r in side if r in case.activities] for side in ranks]
    for (owner, name), side, values in marks:
        changes = _changes(case.sources, statements.get(bare(name), []), owner)
        for change in changes if len(changes) <= NAMED else ():
            way = _condition(case.sources, change, stacks[1 - side], DEEPEST)
            if way is not None:
                file, function, guard, line = way
                sets, jumps = beside(case.sources, file, line)
                left = LeftBehind(file, function, guard, line, side, owner, name, values, sets, jumps)
                found.setdefault((file, *guard.place), left)
    return list(found.values())


def bare(name: str) -> str:
    """'rejected' of 'len(rejected)' and of 'rejected[3]'."""
    return name.removeprefix("len(").rstrip(")").partition("[")[0]


def _of_one_side(case: Case, ranks: SideRanks) -> Iterator[tuple[tuple[str, str], int, tuple[tuple[int, str], ...]]]:
    """((owner, name), side, rank → value) of what every rank of one side has, and no rank of the other."""
    seen = case.values.left((*ranks[0], *ranks[1]))
    # Without a probe, the attributes of what the frames hold are all that is seen.
    for function, name, values in case.values.numbers(attributes=not seen):
        if len(values) > len(seen.get((function, name), ())):  # the frame that most ranks are in
            seen[function, name] = {r: [value] for r, value in values.items()}
    for key, per_rank in seen.items():
        has = [[_has(per_rank.get(rank, [])) for rank in side] for side in ranks]
        as_many = len({len(per_rank.get(rank, [])) for side in ranks for rank in side}) == 1
        # A key that is not in the dictionary yet is no trace on that rank.
        if not all(has) or not (as_many or "[" in key[1]) or is_rank_name(bare(key[1])):
            continue
        for side in (0, 1):
            if all(has[side]) and not any(has[1 - side]):
                yield key, side, tuple((r, "+".join(per_rank.get(r, ["0"]))) for r in sorted(per_rank))


def _has(values: Iterable[str]) -> bool:
    return any(value not in _NOTHING for value in values)


def _changes(sources: Sources, touching: Sequence[_Statement], owner: str) -> list[_Change]:
    """Those of the statements that add to what ``owner`` has; [] where one also takes from it, or sets it anew.

    A class's own method that changes `self.name` counts for that class, and for those that are made of it.
    """
    found: list[_Change] = []
    local = any(True for _ in sources.user_functions(owner))
    kinds = _with_bases(sources, owner)
    changing: set[str] = set()
    for each in touching:
        line, within = each.change.node.lineno, _name(each.change)
        if within in _MADE or (within == "<module>" and owner != within) or (local and within != owner):
            continue
        changing |= each.classes
        if kinds and each.classes and each.classes.isdisjoint(kinds):
            continue  # another class's, of the same name
        in_loop = bool(loops_around(each.change.tree, line))
        if not each.adds and (within == "<module>" or local) and not in_loop:
            continue  # where a plain name begins
        if not each.adds:
            return []
        found.append(each.change)
    # Of an attribute whose class is not known, several classes may have one of that name.
    return found if kinds or len(changing) < 2 else []


def _statements(sources: Sources) -> dict[str, list[_Statement]]:
    """Last name → the statements in the user's code that change what has it, each once."""
    found: dict[str, list[_Statement]] = {}
    seen: set[tuple[str, int, str]] = set()
    for file, tree in sources.user_trees():
        classes = [node for node in walk(tree) if isinstance(node, ast.ClassDef)]
        for node in (each for each in walk(tree) if isinstance(each, ast.stmt)):
            for target, adds in _touched(node):
                name = last_name(target)
                if not name or (file, node.lineno, name) in seen:
                    continue
                seen.add((file, node.lineno, name))
                own = isinstance(target, ast.Attribute) and last_name(target.value) == "self"
                around = frozenset(c.name for c in classes if holds(c, node.lineno)) if own else frozenset()
                found.setdefault(name, []).append(_Statement(_Change(file, tree, node), adds, around))
    return found


def _with_bases(sources: Sources, owner: str) -> set[str]:
    """The class and the program's classes that it is made of."""
    found: set[str] = set()
    waiting = [owner]
    while waiting:
        name = waiting.pop()
        if name not in found and (made := sources.user_classes(name)):
            found.add(name)
            waiting += [last_name(base) for _, _, node in made for base in node.bases]
    return found


def _touched(node: ast.stmt) -> Iterator[tuple[ast.expr, bool]]:
    """(what the statement changes, whether it adds to it, or sets it as a flag); False for one that takes from it, or
    sets it anew. Of `stats[key] = 1` it is `stats`."""
    if isinstance(node, ast.AugAssign):
        yield _container(node.target), isinstance(node.op, ast.Add | ast.BitOr)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function = node.value.func
        if isinstance(function, ast.Attribute) and function.attr in (*names("leaves_more"), *names("leaves_less")):
            yield function.value, function.attr in names("leaves_more")
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        is_flag = isinstance(node.value, ast.Constant) and bool(node.value.value)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            for part in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
                yield _container(part), isinstance(part, ast.Subscript) or (is_flag and part is target)
        if isinstance(node.value, ast.Call):  # `first = pending.pop()`
            function = node.value.func
            if isinstance(function, ast.Attribute) and function.attr in names("leaves_less"):
                yield function.value, False
    elif isinstance(node, ast.Delete):
        yield from ((_container(each), False) for each in node.targets)


def _container(target: ast.expr) -> ast.expr:
    return target.value if isinstance(target, ast.Subscript) else target


def _condition(sources: Sources, change: _Change, others: list[Stack], deep: int) -> tuple[str, str, Guard, int] | None:
    """(file, function, guard, line) of the innermost condition on the way to the statement; None where there is none,
    or it can be the rank, or the count of rounds, that parted the sides there, or nothing says that the others have
    come to it, too.

    A method that only notes is asked who calls it. Example: `def drop(self): ⏎ self.dropped += 1`, called under
    `if batch.empty():` → that `if`.
    """
    line = change.node.lineno
    function = enclosing_function(change.tree, line)
    name = getattr(function, "name", "<module>")
    if any(_is_behind(sources, stack, change.file, name, line) for stack in others):
        return None
    around = [g for g in without_handing_on(change.tree, guards(change.tree, line)) if decides(g)]
    if any(map(is_alike, around)):
        return None
    callers = [each for each in sources.user_calls(name) if each.function is not function]
    calls = [_Change(each.file, each.tree, ast.Expr(each.call, lineno=each.call.lineno)) for each in callers]
    if around:
        behind = (_is_behind(sources, s, c.file, _name(c), c.node.lineno) for s in others for c in calls)
        return None if len(calls) == 1 and any(behind) else (change.file, name, around[-1], line)
    if len(calls) != 1 or not deep:
        return None
    return _condition(sources, calls[0], others, deep - 1)


def _name(change: _Change) -> str:
    return getattr(enclosing_function(change.tree, change.node.lineno), "name", "<module>")


def decides(guard: Guard) -> bool:
    """True for a condition and for an `except` suite: a loop or a `try:` only stands around what it holds."""
    if guard.kind == "try":
        return guard.taken and guard.condition.startswith("except")
    return guard.kind in (*CONDITIONS, "return", "match")


def is_while(guard: Guard) -> bool:
    """True for the body of a `while`, whose test decides whether it runs at all."""
    return guard.kind == "loop" and guard.condition.startswith("while ") and not guard.in_header


def is_alike(guard: Guard) -> bool:
    """True for a condition on the rank, or one that is the same on every rank, or true in some rounds."""
    if guard.names == ("__name__",):
        return True
    on_rank = any(map(is_rank_name, guard.names)) or pattern("rank_word").search(guard.condition) is not None
    same = pattern("same_everywhere").search(guard.condition) is not None
    return on_rank or same or (" % " in guard.condition and not _tests_more(guard))


def _tests_more(guard: Guard) -> bool:
    """True if a part of the condition tests something besides the rounds: `self.draft is not None and n % 8 == 7`."""
    parts = re.split(r"\b(?:and|or)\b", guard.condition.partition(" ")[2].rstrip(":"))
    words = [set(re.findall(r"[A-Za-z_][\w.]*", part)) - {"not", "is", "None", "in", "True", "False"} for part in parts]
    counted = set().union(*(own for own, part in zip(words, parts, strict=True) if " % " in part))
    return any(own - counted for own, part in zip(words, parts, strict=True) if " % " not in part)


def _is_behind(sources: Sources, stack: Stack, file: str, function: str, line: int) -> bool:
    """True if the stack is in that function, before the line: its rank may not have come there yet.

    In a loop around both, or around a call that led there, it has been there in an earlier round.
    """
    for at, frame in enumerate(stack):
        if frame.file == file and plain(frame.function) == function and frame.line < line:
            own = any(loop.holds(line) for loop in _loops(sources, frame))
            return not own and not any(_loops(sources, caller) for caller in stack[at + 1 :])
    return False


def _loops(sources: Sources, frame: Frame) -> list[Guard]:
    return loops_around(sources.function(frame.file, frame.line), frame.line)


def _changed_by(statement: ast.stmt) -> Iterator[str]:
    """The last names of what a plain statement sets, counts, or puts something into or takes it from."""
    targets = statement.targets if isinstance(statement, ast.Assign | ast.Delete) else []
    for target in [*targets, *([statement.target] if isinstance(statement, ast.AugAssign) else [])]:
        yield last_name(target.value if isinstance(target, ast.Subscript) else target)
    changing = {*names("changes_content"), *names("takes_items")}
    for node in walk(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in changing:
            yield last_name(node.func.value)


def beside(sources: Sources, file: str, line: int) -> tuple[frozenset[str], bool]:
    """(the last names of what the statements of the line's block set, count or fill, whether one of them leaves the
    suite). Example: of `_, old = self.slots.popitem() ⏎ self.used -= old.size` → 'old', 'slots' and 'used'."""
    tree = sources.function(file, line)
    sets: set[str] = set()
    jumps = False
    for node in walk(enclosing_function(tree, line)) if tree is not None else ():
        for block in (getattr(node, part, None) for part in ("body", "orelse", "finalbody")):
            if not isinstance(block, list) or not any(holds(each, line) and not has_blocks(each) for each in block):
                continue
            sets.update(name for each in block if not has_blocks(each) for name in _changed_by(each))
            jumps = isinstance(block[-1], _JUMPS) and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return frozenset(sets - {""}), jumps
