"""Why one rank has more values to reduce than another: the conditions under which the user's code logs a value that is
reduced over the ranks.

The call is made in one hook and the reduction runs in another, so no stack shows the line. Example:

    def validation_step(self, batch, batch_idx):
        if positive.any():
            self.log("recall", recall, sync_dist=True)    # a rank without positives reduces one value less

A dictionary that is logged says as much by its keys: `log_dict({k: v for k, v in scores.items() if seen[k]}, …)`; and
so does one that a loop goes over to log its items, with a key for whatever a rank saw: `self.errors[name] += error`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.diagnosis.source.equal_counts import is_fixed, is_over_fixed, kept_by
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.settings import Place, settings
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function, holds, last_name, target_text, text_of, walk
from hangdoc.model.message import Condition

_MOST = 2
"""Conditions; more of them say nothing. Chosen by hand."""
_STEPS = 2
"""Functions that hand on a key, followed this far. Chosen by hand."""


def logged_under(sources: Sources) -> list[Condition]:
    """The conditions under which values are logged that the ranks reduce together; [] where there are none, or too many
    to tell."""
    found: dict[Condition, None] = {}
    for file, tree in sources.user_trees():
        for call in walk(tree):
            if isinstance(call, ast.Call) and _is_reduced(call):
                found.update(dict.fromkeys(_of_call(sources, file, tree, call)))
    return list(found) if len(found) <= _MOST else []


def _is_reduced(call: ast.Call) -> bool:
    """True for `self.log("loss", loss, sync_dist=True)`, and for what another variable decides: `sync_dist=many`."""
    given = (word.value for word in call.keywords if word.arg in names("reduces_logged"))
    return last_name(call.func) in names("logs_value") and any(
        not (isinstance(value, ast.Constant) and not value.value) for value in given
    )


def _of_call(sources: Sources, file: str, tree: ast.AST, call: ast.Call) -> Iterator[Condition]:
    """The conditions around the call, and those that decide the keys of what it logs."""
    yield from _around(file, tree, call.lineno)
    function = enclosing_function(tree, call.lineno)
    loops = [n for n in walk(function) if isinstance(n, ast.For) and call in walk(n)]
    for loop in loops:
        text = f"for {target_text(loop.target)} in {text_of(loop.iter)}:"
        yield from _over_what_was_seen(sources, loop.iter, Condition(text, file, loop.lineno))
    for given in [*call.args, *(loop.iter for loop in loops)]:
        yield from _of_keys(sources, file, function, given)


def _over_what_was_seen(sources: Sources, over: ast.expr, loop: Condition) -> Iterator[Condition]:
    """A loop over an attribute that has a key for whatever a rank saw, and the line that gives it one.

    Example: `for name, errors in sorted(self.errors.items()):`, and `self.errors[SOURCES[s]].append(error)`.
    """
    items = over
    while isinstance(items, ast.Call) and (kept := kept_by(items)) is not None:
        items = kept
    if not isinstance(items, ast.Attribute) or is_fixed(sources, over):
        return
    filled = [each for place in sources.user_trees() for each in _keyed_by_data(sources, *place, items.attr)]
    if filled:
        yield loop
        yield filled[0]


def _keyed_by_data(sources: Sources, file: str, tree: ast.AST, name: str) -> Iterator[Condition]:
    """The lines `X.NAME[key] = …`, `X.NAME[key] += …`, `X.NAME[key].append(…)` and `X.NAME.setdefault(key, …)` with a
    key that is no constant and that no loop over fixed ones gives; instead of such a line the innermost condition under
    which it runs."""
    for node in walk(tree):
        targets: list[ast.expr] = []
        keys: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            targets = [node.func.value] if node.func.attr in names("leaves_more") else []
            keys = node.args[:1] if node.func.attr == "setdefault" and last_name(node.func.value) == name else []
        keys += [t.slice for t in targets if isinstance(t, ast.Subscript) and last_name(t.value) == name]
        for key in keys:
            if not isinstance(node, ast.stmt | ast.expr):
                continue
            at = Place(file, tree, enclosing_function(tree, node.lineno))
            if _of_data(sources, at, node.lineno, key):
                yield next(
                    reversed(list(_around(file, tree, node.lineno))), Condition(text_of(node), file, node.lineno)
                )


def _of_data(sources: Sources, at: Place, line: int, key: ast.expr, steps: int = _STEPS) -> bool:
    """True if an item of a loop is in the key, and the loop does not go over what the program has written out; of an
    argument, if that holds for what a call gives for it: `self.collect(TASKS[int(t)], error)`."""
    asked = {each.id for each in walk(key) if isinstance(each, ast.Name)}
    loops = [n for n in walk(at.tree) if isinstance(n, ast.For) and holds(n, line)]
    giving = [n for n in loops if asked & {each.id for each in walk(n.target) if isinstance(each, ast.Name)}]
    if giving:
        return not any(is_over_fixed(sources, at.tree, n.lineno) or last_name(n.iter).isupper() for n in giving)
    given = (each for name in sorted(asked) for each in settings(sources, at, ast.Name(name)) if each.how == "given")
    return steps > 0 and any(
        _of_data(sources, each.at, each.line, each.value, steps - 1) for each in given if each.value is not None
    )


def _around(file: str, tree: ast.AST, line: int) -> Iterator[Condition]:
    for guard in guards(tree, line):
        if guard.kind in CONDITIONS and not is_alike(guard.condition):
            yield Condition(guard.condition, file, guard.line)


def is_alike(condition: str) -> bool:
    """True if the condition is the same on every rank, by the words in it. Example: `if dist.is_initialized():`."""
    return any(pattern(kind).search(condition) for kind in ("same_everywhere", "same_in_a_stage"))


def _of_keys(sources: Sources, file: str, function: ast.AST, given: ast.expr) -> Iterator[Condition]:
    """The conditions that decide the keys of a dictionary: of `scores`, and of what makes it.

    Example: `scores = self.recall.per_class()`, which returns `{n: … for n in names if self.seen[n]}` → that `if`.
    """
    if isinstance(given, ast.Name):
        made = [n.value for n in walk(function) if isinstance(n, ast.Assign) and given.id in _targets(n)]
        yield from _filled(file, function, given.id)
    else:
        made = [given]
    for node in (each for value in made for each in walk(value)):
        if isinstance(node, ast.DictComp):
            yield from _of_comprehension(sources, file, node)
        elif isinstance(node, ast.Call):
            for where, body in sources.user_functions(last_name(node.func)):
                yield from _of_result(sources, where, body)


def _of_result(sources: Sources, file: str, body: ast.FunctionDef) -> Iterator[Condition]:
    """The conditions that decide the keys of the dictionary that a function returns."""
    returned = [n.value for n in walk(body) if isinstance(n, ast.Return) and n.value is not None]
    kept = {value.id for value in returned if isinstance(value, ast.Name)}
    made = [n.value for n in walk(body) if isinstance(n, ast.Assign) and kept & _targets(n)]
    for value in [*returned, *made]:
        if isinstance(value, ast.DictComp):
            yield from _of_comprehension(sources, file, value)
    for name in sorted(kept):
        yield from _filled(file, body, name)


def _of_comprehension(sources: Sources, file: str, made: ast.DictComp) -> Iterator[Condition]:
    """What leaves keys out of it, and what it goes over."""
    for part in made.generators:
        for test in part.ifs:
            if not is_alike(text_of(test)):
                yield Condition(f"if {text_of(test)}", file, test.lineno)
        loop = Condition(f"for {target_text(part.target)} in {text_of(part.iter)}", file, part.iter.lineno)
        yield from _over_what_was_seen(sources, part.iter, loop)


def _filled(file: str, function: ast.AST, name: str) -> Iterator[Condition]:
    """The conditions around `scores["recall"] = …` in the function."""
    for node in walk(function):
        if not isinstance(node, ast.Assign):
            continue
        keys = (key.value for key in node.targets if isinstance(key, ast.Subscript))
        if any(isinstance(owner, ast.Name) and owner.id == name for owner in keys):
            yield from _around(file, function, node.lineno)


def _targets(node: ast.Assign) -> set[str]:
    return {target.id for target in node.targets if isinstance(target, ast.Name)}
