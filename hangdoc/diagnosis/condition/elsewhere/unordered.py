"""Loops over what has an order of its own in each process: a set, whose strings are hashed by a random seed, or the
listing of a folder, which a file system gives as it lies there.

Example: `if flat(name):` is True on rank 0 alone, in the first round of

    20  self.pending = set()
    …
    31  for name in self.pending:
    32      if flat(name):

→ `self.pending` is a set, in `for name in self.pending:` at line 31. `sorted(self.pending)` is none.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from hangdoc.diagnosis.bounds import DEEPEST, LISTED
from hangdoc.diagnosis.condition.elsewhere.answers import Answer
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.settings import Place, place_of, settings
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import holds, last_name, names_in, target_text, text_of, walk
from hangdoc.model.message import Condition
from hangdoc.model.process import Stack

_SET = "is a set, whose order may differ from process to process,"
_LISTING = "is the listing of a folder, whose order may differ from process to process,"
_COMBINES = (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)
_LOOPS = (ast.For, ast.AsyncFor)


def unordered_at(sources: Sources, file: str, line: int) -> Answer | None:
    """That the loop at the line, or the one whose items the condition there tests, goes over something without an
    order; None where it does not."""
    at = place_of(sources, file, line)
    if at is None:
        return None
    loops = [n for n in walk(at.function) if isinstance(n, _LOOPS) and holds(n, line)]
    own = next((loop for loop in loops if loop.lineno == line), None)
    if own is not None:
        found = _kind(sources, at, own.iter, DEEPEST)
        return Answer("", (found[1],), how=f"{found[0]} made by", subject=_shown(own)) if found is not None else None
    tested = [n.test for n in walk(at.function) if isinstance(n, ast.If | ast.IfExp) and n.lineno == line]
    for loop in reversed(loops):
        if not any(_comes_from(loop, test) for test in tested):
            continue
        found = _kind(sources, at, loop.iter, DEEPEST)
        if found is not None:
            return Answer("", (_header(loop, file),), how=f"{found[0]} in", subject=_shown(loop))
    return None


@dataclass(frozen=True, slots=True)
class ItemOfUnordered:
    """A call whose arguments come from an item of ``loop``, which goes over what ``answer`` says of it."""

    loop: Condition
    answer: Answer


def item_of_unordered(sources: Sources, stack: Stack) -> ItemOfUnordered | None:
    """The loop that chooses what the innermost user's call is given, or a caller's, where it goes over something
    without an order; None where none does.

    Example: `for role in frozenset(table): ⏎ new_group(table[role])` → that loop.
    """
    for frame in user_stack(stack)[:LISTED]:
        at = place_of(sources, frame.file, frame.line)
        if at is None:
            return None
        for loop in (n for n in walk(at.function) if isinstance(n, _LOOPS) and holds(n, frame.line)):
            calls = (n for n in walk(loop) if isinstance(n, ast.Call) and holds(n, frame.line))
            if loop.lineno == frame.line or not any(_comes_from(loop, call) for call in calls):
                continue
            found = unordered_at(sources, frame.file, loop.lineno)
            if found is not None:
                return ItemOfUnordered(_header(loop, frame.file), found)
    return None


def _header(loop: ast.For | ast.AsyncFor, file: str) -> Condition:
    return Condition(f"for {target_text(loop.target)} in {text_of(loop.iter)}:", file, loop.lineno)


def _shown(loop: ast.For | ast.AsyncFor) -> str:
    return text_of(_unwrapped(loop.iter))


def _unwrapped(items: ast.expr) -> ast.expr:
    """`self.pending` of `list(self.pending)`: what only hands the items on in their order."""
    while isinstance(items, ast.Call) and last_name(items.func) in names("wraps_items") and items.args:
        items = items.args[0]
    return items


def _comes_from(loop: ast.For | ast.AsyncFor, test: ast.expr) -> bool:
    """True if the test asks for an item of the loop, or for what was made of one in its body."""
    items = set(names_in(loop.target))
    for node in walk(loop):
        if isinstance(node, ast.Assign) and items & set(names_in(node.value)):
            items |= {name for target in node.targets for name in names_in(target)}
    return bool(items & {name.partition(".")[0] for name in names_in(test)})


def _kind(sources: Sources, at: Place, items: ast.expr, deep: int) -> tuple[str, Condition] | None:
    """What the items are, and the line that makes them so; None where they have an order, or nobody can say."""
    items = _unwrapped(items)
    made = Condition(text_of(items), at.file, items.lineno)
    if isinstance(items, ast.Set | ast.SetComp):
        return _SET, made
    if isinstance(items, ast.ListComp | ast.GeneratorExp):
        return _kind(sources, at, items.generators[0].iter, deep)
    if isinstance(items, ast.BinOp) and isinstance(items.op, _COMBINES):
        return _kind(sources, at, items.left, deep) or _kind(sources, at, items.right, deep)
    if isinstance(items, ast.Call) and last_name(items.func) in names("makes_a_set"):
        return _SET, made
    if isinstance(items, ast.Call) and last_name(items.func) in names("lists_folder"):
        return _LISTING, made
    if not deep:
        return None
    steps = [s for s in settings(sources, at, items) if s.value is not None and s.how != "item" and s.part < 0]
    found = [_kind(sources, s.at, s.value, deep - 1) for s in steps if s.value is not None]
    # One setting that gives it an order is enough to doubt the others.
    if not found or not all(found):
        return None
    kind, condition = found[0] or ("", made)
    step = steps[0]
    return kind, Condition(step.text, step.at.file, step.line) if len(found) == 1 and step.how == "set" else condition
