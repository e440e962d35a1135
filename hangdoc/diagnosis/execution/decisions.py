"""What a rank decided, in order: how whole conditions and loops came out, of the single jumps that were recorded.

Example: of `if ready and loss < best:`, the jumps of `ready` ('T') and `loss < best` ('F') are one decision, 'False'.
What a function that the condition asks has decided lies between these jumps, and comes before it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from hangdoc.diagnosis.execution.outcomes import Place, place_of
from hangdoc.diagnosis.execution.tested import (
    COMPREHENSIONS,
    ENDED,
    FALSE,
    ROUND,
    TRUE,
    is_of,
    is_of_comprehension,
    is_of_loop,
    words_of,
)
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import target_text, text_of, walk
from hangdoc.model.branches import MOST_BRANCHES, BranchCounts

Key = tuple[str, int, str]
"""File, line and text of a condition, as a guard has them: 'loss < best', 'for batch in loader'."""


class Decision(NamedTuple):
    """``number``: which of the jumps completed it; ``value``: 'True', 'False', 'another round', 'ended'. ``catches``:
    of an `except` or `with`, to which an exception came."""

    key: Key
    value: str
    number: int
    catches: bool = False


def condition_key(file: str, line: int, condition: str) -> Key:
    """The key of a condition as a guard writes it: 'if loss < best:' → 'loss < best'."""
    return file, line, condition.removeprefix("if ").removeprefix("while ").removesuffix(":")


def decisions(sources: Sources, tests: Iterable[tuple[BranchCounts, str]]) -> list[Decision]:
    """Of (test, value) in order. A condition that was left half way, by an exception, is none."""
    found: list[Decision] = []
    half: dict[Key, dict[int, bool | None]] = {}
    chained: dict[Key, int] = {}
    for number, (test, value) in enumerate(tests):
        part = part_of(sources, test)
        if part is None:
            continue
        key = (test.file, part.head.line, part.head.text)
        if part.leaf is None:
            found.append(Decision(key, ROUND if value == "T" else ENDED, number))
            continue
        leaf = part.head.leaves[part.leaf]
        word = words_of(leaf).get(value)
        if word not in (TRUE, FALSE):
            continue
        if word == TRUE and isinstance(leaf, ast.Compare) and (more := len(leaf.ops) - 1 - chained.get(key, 0)):
            chained[key] = len(leaf.ops) - more  # `a < b < c` has a jump for each `<`
            continue
        chained[key] = 0
        known = {at: true for at, true in half.get(key, {}).items() if at < part.leaf} | {part.leaf: word == TRUE}
        true = part.head.truth(known)
        half[key] = known if true is None else {}
        if true is not None:
            found.append(Decision(key, TRUE if true else FALSE, number, part.head.catches))
    return found


def whole_counts(sources: Sources, branches: Sequence[BranchCounts]) -> dict[Key, dict[str, int]]:
    """How often whole conditions and loops came out in each way, where that is known from the first time on.

    Example: of `if ready and loss < best:` with `ready` true 5 times and false twice, and `loss < best` true once and
    false 4 times → {'True': 1, 'False': 6}.
    """
    found: dict[Key, tuple[Head, dict[int, tuple[int, int]]]] = {}
    unknown: set[Key] = set()
    for test in filter(lambda each: each.is_sound, branches):
        part = part_of(sources, test)
        if part is None:
            continue
        key, leaf = (test.file, part.head.line, part.head.text), part.leaf or 0
        words = words_of(part.head.leaves[leaf]) if part.leaf is not None else {"T": TRUE, "F": FALSE}
        counts = {words.get(value): count for value, count in zip(test.values, test.counts, strict=True)}
        if not test.whole or counts.keys() != {TRUE, FALSE}:
            unknown.add(key)
            continue
        had = found.setdefault(key, (part.head, {}))[1]
        before = had.get(leaf, (0, 0))  # several jumps may be of one expression
        had[leaf] = before[0] + counts[TRUE], before[1] + counts[FALSE]
    told: dict[Key, dict[str, int]] = {}
    all_told = len(branches) < MOST_BRANCHES
    for key, (head, had) in found.items():
        # A test that was never asked is not among them, nor is one for which there was no room.
        if not all_told and len(had) < len(head.leaves):
            continue
        leaves = {id(leaf): had.get(at, (0, 0)) for at, leaf in enumerate(head.leaves)}
        both = _summed(head.test, leaves) if head.test is not None else had[0]
        # Else an exception has left it half way, or a part of it is a constant or several comparisons.
        if key not in unknown and sum(both) == sum(had.get(0, (0, 0))):
            told[key] = dict(zip((ROUND, ENDED) if head.test is None else (TRUE, FALSE), both, strict=True))
    return told


def _summed(test: ast.expr, counts: Mapping[int, tuple[int, int]]) -> tuple[int, int]:
    """How often it was (true, false), by its leaves."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _summed(test.operand, counts)[::-1]
    if isinstance(test, ast.BoolOp):
        parts = [_summed(each, counts) for each in test.values]
        if isinstance(test.op, ast.Or):
            return sum(true for true, _ in parts), parts[-1][1]
        return parts[-1][0], sum(false for _, false in parts)
    return counts.get(id(test), (0, 0))


@dataclass(frozen=True, slots=True)
class Head:
    """A condition (``test``) or, of a loop, None. ``leaves``: what it tests one by one, each by a jump. ``catches``: an
    `except` or `with`, of what was raised."""

    line: int
    text: str
    test: ast.expr | None
    leaves: tuple[ast.expr, ...] = ()
    catches: bool = False

    def truth(self, known: dict[int, bool | None]) -> bool | None:
        """How it came out, by those of its leaves that were asked; None while that is open."""
        return _truth(self.test, {id(leaf): known.get(at) for at, leaf in enumerate(self.leaves)})


class Part(NamedTuple):
    """``leaf``: which of the head's leaves; None: the loop's own jump."""

    head: Head
    leaf: int | None


def part_of(sources: Sources, test: BranchCounts) -> Part | None:
    """The condition that a recorded test is a part of; None where the source that was captured shows none."""
    tree = sources.function(test.file, test.line)
    if tree is None:
        return None
    place = place_of(test.file, test)
    for part, node in _heads(tree).get(test.line, ()):
        if _fits(node, place, of_loop=part.leaf is None) and (part.leaf is not None or test.values == "TF"):
            return part
    return None


def _fits(node: ast.AST, place: Place, *, of_loop: bool) -> bool:
    if isinstance(node, ast.ExceptHandler | ast.With | ast.AsyncWith):
        return (node.lineno, node.col_offset) == place[1:3]
    if not of_loop:
        return isinstance(node, ast.expr) and is_of(node, place)
    if isinstance(node, ast.For):
        return is_of_loop(node, place)
    return isinstance(node, COMPREHENSIONS) and is_of_comprehension(node, place)


# Asked of every test of every rank.
@lru_cache(maxsize=1024)
def _heads(tree: ast.AST) -> dict[int, list[tuple[Part, ast.AST]]]:
    """Line → what is tested there, each with the expression or loop that its jump has the place of."""
    found: dict[int, list[tuple[Part, ast.AST]]] = {}
    within: set[int] = set()
    for head, node in _all_heads(tree):
        if head.test is None:
            for line in {getattr(node, "lineno", 0), *(each.lineno for each in _gone_over(node))}:
                found.setdefault(line, []).append((Part(head, None), node))
            continue
        if isinstance(node, ast.BoolOp) and id(node) in within:
            continue  # a part of a condition
        within.update(id(each) for each in walk(head.test) if not head.catches)
        for at, leaf in enumerate(head.leaves):
            where = node if head.catches else leaf
            found.setdefault(getattr(where, "lineno", 0), []).append((Part(head, at), where))
    return found


def _gone_over(node: ast.AST) -> list[ast.expr]:
    each = getattr(node, "generators", None)
    return [one.iter for one in each] if each is not None else [getattr(node, "iter", ast.expr())]


def _all_heads(tree: ast.AST) -> Iterator[tuple[Head, ast.AST]]:
    """(head, node): statements before the operands that are in no condition."""
    operands = []
    for node in walk(tree):
        if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
            yield _condition(node.lineno, node.test), node
        elif isinstance(node, ast.For):
            yield Head(node.lineno, f"for {target_text(node.target)} in {text_of(node.iter)}", None), node
        elif isinstance(node, COMPREHENSIONS):
            for each in node.generators:
                yield Head(node.lineno, f"for {target_text(each.target)} in {text_of(each.iter)}", None), node
                for test in each.ifs:
                    yield _condition(test.lineno, test), node
        elif isinstance(node, ast.match_case) and node.guard is not None:
            yield _condition(node.guard.lineno, node.guard), node
        elif isinstance(node, ast.ExceptHandler):
            what = node.type or ast.Name("BaseException")
            yield (
                Head(
                    node.lineno, f"except {text_of(node.type)}" if node.type else "except", what, (what,), catches=True
                ),
                node,
            )
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                what = item.context_expr
                # CPython 3.12 tells the place of the statement, 3.13 that of the item.
                for at in (what, node):
                    yield Head(node.lineno, f"with {text_of(what)}", what, (what,), catches=True), at
        elif isinstance(node, ast.BoolOp):
            operands.append(node)
    for node in operands:
        before = node.values[0] if len(node.values) == 2 else ast.BoolOp(node.op, node.values[:-1])
        yield _condition(node.lineno, before), node


def _condition(line: int, test: ast.expr) -> Head:
    return Head(line, text_of(test), test, tuple(_leaves(test)))


def _leaves(test: ast.expr) -> Iterator[ast.expr]:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _leaves(test.operand)
    elif isinstance(test, ast.BoolOp):
        for each in test.values:
            yield from _leaves(each)
    elif not isinstance(test, ast.Constant):
        yield test


def _truth(test: ast.expr | None, known: dict[int, bool | None]) -> bool | None:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        true = _truth(test.operand, known)
        return None if true is None else not true
    if isinstance(test, ast.BoolOp):
        ends = isinstance(test.op, ast.Or)
        for each in test.values:
            true = _truth(each, known)
            if true is None or true == ends:
                return true
        return not ends
    return bool(test.value) if isinstance(test, ast.Constant) else known.get(id(test))
