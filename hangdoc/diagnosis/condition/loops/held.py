"""Which items a loop finds in a container: under which conditions the program puts them in, or takes them out.

Examples: `for _ in range(len(self.rows)):`, and `if row.std() < limit: ⏎ continue ⏎ self.rows.append(row)` fills it;
`for name in self.heads:`, and elsewhere `if head.failures > limit: ⏎ del self.heads[name]`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from hangdoc.diagnosis.bounds import NAMED, TRIED
from hangdoc.diagnosis.condition.elsewhere.answers import Answer
from hangdoc.diagnosis.condition.loops.left_out import is_full
from hangdoc.diagnosis.frames.names import is_rank_name, names, pattern
from hangdoc.diagnosis.source.equal_counts import kept_by
from hangdoc.diagnosis.source.evaluate import test_at
from hangdoc.diagnosis.source.guards import CONDITIONS, Guard, guards
from hangdoc.diagnosis.source.handlers import swallowing
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import (
    dotted,
    enclosing_function,
    innermost_loop,
    last_name,
    names_in,
    text_of,
    walk,
)
from hangdoc.model.asked import answers_to
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def items_of_value(sources: Sources, file: str, here: ast.AST, value: ast.expr) -> list[Condition]:
    """The same for what the value holds, or counts, which stands in the function ``here``: `len(devices)`."""
    found = dict.fromkeys(_Search(sources).of_value(file, here, value, TRIED))
    return list(found) if len(found) <= NAMED else []


def items_counted(sources: Sources, file: str, line: int) -> list[Answer]:
    """The same for what the condition at that line asks the length of, or whether it holds anything at all.

    Example: `if len(memory) < WARMUP:`, and `if not reward: ⏎ return ⏎ self.items.append(reward)` in the class of which
    memory is one → that `if`.
    """
    tree = sources.function(file, line)
    test = test_at(tree, line) if tree is not None else None
    if tree is None or test is None:
        return []
    here = enclosing_function(tree, line)
    test = test.operand if isinstance(test, ast.UnaryOp) else test
    asked = [n.args[0] for n in walk(test) if isinstance(n, ast.Call) and last_name(n.func) == "len" and n.args]
    asked += [test] if isinstance(test, ast.Name | ast.Attribute) else []
    own = {Condition(guard.condition, file, guard.line) for guard in guards(tree, line)}
    found = {text_of(each): [c for c in items_of_value(sources, file, here, each) if c not in own] for each in asked}
    name = getattr(here, "name", "")
    return [Answer(name, tuple(each), subject=of, how="is filled depending on") for of, each in found.items() if each]


@dataclass(slots=True)
class _Search:
    """Follows what containers are made of; each is looked into once."""

    sources: Sources
    read: set[str] = field(default_factory=set)

    def of_value(self, file: str, here: ast.AST, value: ast.expr | None, steps: int) -> Iterator[Condition]:
        """The conditions that decide how many items the value has, which stands in the function ``here``."""
        if value is None or not steps:
            return
        if isinstance(value, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            tests = [t for each in value.generators for t in each.ifs if _parts(t)]
            yield from (Condition(f"if {text_of(test)}", file, test.lineno) for test in tests)
            if not tests:
                yield from self.of_value(file, here, value.generators[0].iter, steps - 1)
        elif isinstance(value, ast.BinOp):
            for each in (value.left, value.right):
                yield from self.of_value(file, here, each, steps - 1)
        elif isinstance(value, ast.Name):
            yield from self._of_local(file, here, value.id, steps - 1)
        elif isinstance(value, ast.Attribute):
            yield from self._of_attribute(file, here, value, steps - 1)
        elif isinstance(value, ast.Subscript):
            yield from self.of_value(file, here, value.value, steps - 1)
        elif isinstance(value, ast.Await):
            yield from self.of_value(file, here, value.value, steps)
        elif isinstance(value, ast.Call):
            yield from self._of_call(file, here, value, steps - 1)

    def _of_call(self, file: str, here: ast.AST, call: ast.Call, steps: int) -> Iterator[Condition]:
        name = last_name(call.func)
        if name in names("drops_items") and len(call.args) > 1:
            yield Condition(text_of(call), file, call.lineno)
        elif name in names("runs_coroutine") and not self.sources.user_definitions(name):
            yield from self.of_value(file, here, call.args[0] if call.args else None, steps)
        elif name in names("hands_items_on") or name in names("counts_items"):
            for each in call.args:
                yield from self.of_value(file, here, each, steps)
        elif (kept := kept_by(call)) is not None:
            yield from self.of_value(file, here, kept, steps)
        else:
            made = self.sources.user_definitions(name) if name else []
            classes = self.sources.user_classes(name)
            made = made or [(where, each) for where, _, owner in classes for each in _length(owner)]
            if len(made) == 1 and made[0][1] is not here:
                yield from self._of_returned(*made[0], steps)

    def _of_returned(self, file: str, function: _Function, steps: int) -> Iterator[Condition]:
        """Of what the function returns; of a generator, of what it yields."""
        own = [n for n in walk(function) if isinstance(n, ast.Return | ast.YieldFrom | ast.Expr)]
        for node in own:
            if enclosing_function(function, node.lineno) is not function:
                continue
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield):
                around = list(self._around(file, function, node, ""))
                yield from around or self._of_rounds(file, function, node, steps)
            elif isinstance(node, ast.Return | ast.YieldFrom):
                yield from self._around(file, function, node, "")
                yield from self.of_value(file, function, node.value, steps)

    def _of_rounds(self, file: str, function: _Function, node: ast.stmt, steps: int) -> Iterator[Condition]:
        """Of the loop around a `yield`: of what it goes over, or empties.

        Examples: `for k in range(0, len(rows), 8): ⏎ yield rows[k : k + 8]`; `while self.heap: ⏎ yield pop(self.heap)`.
        """
        inner = innermost_loop(function, node.lineno)
        if isinstance(inner, ast.For):
            yield from self.of_value(file, function, inner.iter, steps)
        elif isinstance(inner, ast.While) and isinstance(inner.test, ast.Name | ast.Attribute):
            yield from self.of_value(file, function, inner.test, steps)

    def _of_local(self, file: str, here: ast.AST, name: str, steps: int) -> Iterator[Condition]:
        """Of a local variable; of an argument, what the only call of the function is given."""
        key = f"{file}:{getattr(here, 'lineno', 0)}:{name}"
        if key in self.read:
            return
        self.read.add(key)
        yield from self._of_changes(file, here, here, name, steps)
        given = self._given(file, here, name)
        if given is not None:
            yield from self.of_value(given.file, given.function, given.value, steps)

    def _given(self, file: str, here: ast.AST, name: str) -> _Given | None:
        """What the only call of the function, or of the class whose `__init__` it is, gives to that argument."""
        if not isinstance(here, ast.FunctionDef):
            return None
        taken = [each.arg for each in (*here.args.posonlyargs, *here.args.args)]
        owner = self._class_around(file, here)
        calls = self.sources.user_calls(owner.name if owner is not None and here.name == "__init__" else here.name)
        if name not in taken or len(calls) != 1:
            return None
        taken = taken[1:] if owner is not None and taken[0] in ("self", "cls") else taken
        by_name = [each.value for each in calls[0].call.keywords if each.arg == name]
        plain = [each for each in calls[0].call.args if not isinstance(each, ast.Starred)]
        at = taken.index(name) if name in taken else len(plain)
        value = next(iter(by_name), plain[at] if at < len(plain) else None)
        return _Given(calls[0].file, calls[0].function, value) if value is not None else None

    def _class_around(self, file: str, here: ast.AST) -> ast.ClassDef | None:
        line = getattr(here, "lineno", 0)
        found = [
            node
            for _, tree in self.sources.trees(file)
            for node in walk(tree)
            if isinstance(node, ast.ClassDef) and node.lineno < line <= (node.end_lineno or 0)
        ]
        return max(found, key=lambda node: node.lineno, default=None)

    def _of_attribute(self, file: str, here: ast.AST, value: ast.Attribute, steps: int) -> Iterator[Condition]:
        """Of an attribute that the own class sets, or one class alone; of a property, what it returns."""
        name = value.attr
        own = self._class_around(file, here) if dotted(value) == f"self.{name}" else None
        key = f"{own.lineno if own is not None else ''}.{name}"
        if key in self.read:
            return
        self.read.add(key)
        made = [each for each in self.sources.user_functions(name) if answers_to(each[1], called=False)]
        if len(made) == 1:
            yield from self._of_returned(*made[0], steps)
            return
        owners = self._owners(name)
        if own is not None and own in owners.values():
            yield from self._of_changes(file, own, own, name, steps)
        elif len(owners) == 1:
            for each, tree in self.sources.user_trees():
                yield from self._of_changes(each, tree, tree, name, steps)

    def _owners(self, name: str) -> dict[tuple[str, int], ast.ClassDef]:
        """The classes that set `self.NAME`, by their place."""
        return {
            (file, node.lineno): node
            for file, tree in self.sources.user_trees()
            for node in walk(tree)
            if isinstance(node, ast.ClassDef) and any(_sets(each, f"self.{name}") for each in walk(node))
        }

    def _of_changes(self, file: str, tree: ast.AST, here: ast.AST, name: str, steps: int) -> Iterator[Condition]:
        """What sets the container, and the conditions under which its items come and go."""
        values = [value for node in walk(tree) if (value := _sets(node, name)) is not None]
        by_key = any(isinstance(v, ast.Call) and last_name(v.func) in names("makes_keys") for v in values)
        for node in walk(tree):
            if isinstance(node, ast.stmt) and _changes(node, name, by_key=by_key):
                yield from self._around(file, tree, node, name)
            elif (value := _sets(node, name)) is not None:
                inner = enclosing_function(here, value.lineno)
                yield from self.of_value(file, inner, value, steps)

    def _around(self, file: str, tree: ast.AST, node: ast.stmt | ast.YieldFrom, name: str) -> Iterator[Condition]:
        """The innermost condition, or handler that goes on, around a statement."""
        around = [g for g in guards(tree, node.lineno) if g.kind in (*CONDITIONS, "loop")]
        here = enclosing_function(tree, node.lineno)
        by_call = bool(name) and isinstance(tree, ast.ClassDef) and getattr(here, "name", "") != "__init__"
        around = [g for g in around if g.kind != "return" or by_call or any(o.kind == "loop" for o in around)]
        telling = (g for g in reversed(around) if g.kind != "loop" and _tells(tree, g, name) and not is_full(here, g))
        inner = next(telling, None)
        if inner is not None:
            yield Condition(inner.condition, file, inner.line)
            return
        loop = next((g for g in reversed(around) if g.kind == "loop"), None)
        tried = [
            each
            for each in swallowing(self.sources, Frame(file, node.lineno, ""))
            if loop is not None and each.first > loop.line and any(isinstance(n, ast.Call) for n in _put_in(node))
        ]
        yield from (Condition(each.condition, file, each.line) for each in tried[:1])


@dataclass(frozen=True, slots=True)
class _Given:
    """A value, and the function that it stands in."""

    file: str
    function: ast.AST
    value: ast.expr


def _length(owner: ast.ClassDef) -> list[ast.FunctionDef]:
    return [each for each in owner.body if isinstance(each, ast.FunctionDef) and each.name == "__len__"]


def _put_in(node: ast.stmt | ast.YieldFrom) -> Iterator[ast.AST]:
    """What the statement puts in."""
    value = getattr(node, "value", None)
    for each in value.args if isinstance(value, ast.Call) else [value] if value is not None else []:
        yield from walk(each)


def _parts(test: ast.expr) -> bool:
    """False for a test on the rank, and for one of what kind of file an item is: not the test differs then.

    Of `r != rank and near(r)`, and of `r == rank or far(r)`, the second part counts.
    """
    if isinstance(test, ast.BoolOp):
        return any(map(_parts, test.values))
    of_kind = isinstance(test, ast.Call) and last_name(test.func) in names("asks_kind_of_file")
    return not of_kind and not any(map(is_rank_name, names_in(test)))


def _tells(tree: ast.AST, guard: Guard, name: str) -> bool:
    """False for a condition on the rank, and for one that asks how many items there are, as where a list is full."""
    asked = {each.rpartition(".")[2] for each in guard.names}
    if name in asked:
        return False
    test = test_at(tree, guard.line)
    if any(map(is_rank_name, guard.names)) and not (isinstance(test, ast.BoolOp) and _parts(test)):
        return False
    return guard.names != ("__name__",) and not pattern("same_everywhere").search(guard.condition)


def _changes(node: ast.stmt, name: str, *, by_key: bool) -> bool:
    """True for `rows.append(x)`, `rows[k] = x`, `rows += more`, `del rows[k]`, `heappush(rows, x)` and
    `rows.setdefault(k, []).append(x)`; ``by_key``: also for `cell = rows[k]`."""
    if isinstance(node, ast.AugAssign) and _is(node.target, name):
        return isinstance(node.op, ast.Add | ast.BitOr | ast.Sub)
    targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else []
    if any(isinstance(each, ast.Subscript) and _is(each.value, name) for each in targets):
        return True
    if not isinstance(node, ast.Expr | ast.Assign | ast.AugAssign):
        return False
    parts = list(walk(node))
    if by_key and any(isinstance(each, ast.Subscript) and _is(each.value, name) for each in parts):
        return True
    return any(isinstance(each, ast.Call) and _fills(each, name) for each in parts)


def _fills(call: ast.Call, name: str) -> bool:
    if isinstance(call.func, ast.Attribute) and _is(call.func.value, name):
        return any(call.func.attr in names(each) for each in ("adds_items", "adds_keys", "takes_items"))
    return last_name(call.func) in names("adds_items_to_argument") and bool(call.args) and _is(call.args[0], name)


def _sets(node: ast.AST, name: str) -> ast.expr | None:
    """The value that the statement sets the whole container to, alone or among others: `a, b = x, y`."""
    if isinstance(node, ast.AnnAssign):
        return node.value if _is(node.target, name) else None
    if not isinstance(node, ast.Assign):
        return None
    for target in node.targets:
        if _is(target, name):
            return node.value
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = zip(target.elts, node.value.elts, strict=False)
            found = next((value for each, value in pairs if _is(each, name)), None)
            if found is not None:
                return found
    return None


def _is(node: ast.AST, name: str) -> bool:
    """True for the name itself, where it is a plain or a dotted one, and for an attribute of that name."""
    found = dotted(node)
    return found == name or ("." in found and found.rpartition(".")[2] == name)
