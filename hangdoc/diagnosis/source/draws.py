"""Where a program draws at random, and from which generator.

Example: `random.shuffle(order)` draws from the module's own, 'random'; `self.rng.integers(n)` and
`torch.randperm(n, generator=g)` from an object.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from itertools import islice

from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.diagnosis.source.queries import calls_in
from hangdoc.diagnosis.source.settings import Place, settings
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, last_name, names_in, walk

_DEEPEST = 3
"""Functions that call each other, and settings that follow from each other, followed this far; chosen by hand."""
_MOST = 64
"""Expressions that are looked at for one value; chosen by hand."""
_OF_AN_OBJECT = "object"


def draws_at_random(test: ast.AST) -> bool:
    """True for a condition that draws a number. Example: `self.rng.random() < self.p`."""
    return any(_draws(node) for node in walk(test) if isinstance(node, ast.Call))


def _draws(call: ast.Call) -> bool:
    return pattern("draws_at_random").search(dotted(call.func)) is not None


def generator_of(call: ast.Call) -> str:
    """The module whose own generator the call draws from, 'object' for any other one, '' where a bare name does not
    say. Examples: `random.choice(xs)` → 'random'; `self.rng.choice(xs)` → 'object'; `shuffle(xs)` → ''."""
    owner = dotted(call.func).rpartition(".")[0]
    given = any(each.arg == "generator" for each in call.keywords)
    if not given and (not owner or owner in names("common_generator")):
        return owner
    return _OF_AN_OBJECT


def drawn_in(sources: Sources, statements: Iterable[ast.AST], deepest: int = _DEEPEST) -> set[str]:
    """The generators that the statements draw from, and what they call of the program's own functions."""
    found: set[str] = set()
    for call in (node for each in statements for node in walk(each) if isinstance(node, ast.Call)):
        if _draws(call):
            found.add(generator_of(call))
            continue
        defined = sources.user_definitions(last_name(call.func)) if deepest else []
        if len(defined) == 1:
            found |= drawn_in(sources, calls_in(defined[0][1].body), deepest - 1)
    return found


def drawn_for(sources: Sources, at: Place, value: ast.expr) -> set[str]:
    """The generators that decide about the value of the expression.

    Example: `peer`, of `peer = self.partner()` and `def partner(self): ⏎ random.shuffle(order)` → {'random'}.
    """
    found: set[str] = set()
    for place, each in islice(_what_sets(sources, at, value, _DEEPEST, set()), _MOST):
        found |= drawn_in(sources, [each])
        given = set(names_in(each))
        for call in (node for node in walk(place.function) if isinstance(node, ast.Call) and _draws(node)):
            if any(not given.isdisjoint(names_in(argument)) for argument in call.args):  # `rng.shuffle(order)`
                found.add(generator_of(call))
    return found


def _what_sets(
    sources: Sources, at: Place, value: ast.expr, deepest: int, seen: set[ast.expr]
) -> Iterator[tuple[Place, ast.expr]]:
    """(place, expression) of the value, and of what sets the names in it; each that is not yet in ``seen``."""
    if value in seen:
        return
    seen.add(value)
    yield at, value
    if not deepest:
        return
    for name in (node for node in walk(value) if isinstance(node, ast.Name | ast.Attribute)):
        for each in settings(sources, at, name):
            if each.value is not None:
                yield from _what_sets(sources, each.at, each.value, deepest - 1, seen)


def may_be_the_same(drawn: set[str], other: set[str]) -> bool:
    """True if one of the generators may be in both sets: of a bare name it is not known.

    Example: {'random'} and {'random', 'torch'} → True; {'random'} and {'object'} → False.
    """
    return bool(drawn & other) or bool(drawn and other and "" in drawn | other)
