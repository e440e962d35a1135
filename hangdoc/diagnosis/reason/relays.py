"""Tests that only hand on what another one has decided: of a flag, or of what a container holds.

Example: `if self.veto:`, where `self.veto = True` stands under `if not isfinite(loss):` → that one decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Protocol

from hangdoc.diagnosis.program.items import Definition, Predicate
from hangdoc.diagnosis.source.evaluate import flag_in, sets_constant

Item = Predicate | Definition
LOOPS = ("for", "comprehension")


class HasPath(Protocol):
    """What was reached, and by which way."""

    @property
    def item(self) -> Item:
        """It."""

    @property
    def path(self) -> tuple[Item, ...]:
        """From the start to what it bears on."""


def sources_of(item: Item, every: Mapping[Item, HasPath]) -> list[Item]:
    """The predicates that decide what the test hands on; none of a test of a value."""
    if not isinstance(item, Predicate):
        return []
    return [each.item for each in every.values() if isinstance(each.item, Predicate) and _hands_on(item, each)]


def handed_on(test: Item, source: HasPath) -> bool:
    """True if what the source decides is nothing but what the test asks: a flag that is set, whether there is a value,
    what is returned at all."""
    asked, steps = test, source.path[source.path.index(test) + 1 :]
    for each, following in pairwise([*steps, source.item]):
        if isinstance(each, Predicate):
            asked = each
        elif not _copies([each]) or (isinstance(following, Predicate) and not _sets(asked, each)):
            return False
    return True


def _sets(test: Item, definition: Item) -> bool:
    """True if the test asks for nothing of the value but what is written at its definition."""
    return sets_constant(definition.text) or (isinstance(test, Predicate) and test.asks_for_none)


def _hands_on(test: Predicate, source: HasPath) -> bool:
    """True if the source was reached from the test by way of settings of its flag alone."""
    if test not in source.path:
        return False
    between = source.path[source.path.index(test) + 1 :]
    if not between or not all(isinstance(each, Definition) for each in between):
        return False
    last = between[-1]
    assert isinstance(last, Definition)
    if test.kind in LOOPS:
        listed = source.item.kind == "comprehension" and last.kind == "assign"
        return len(between) <= 3 and (last.kind == "filled" or listed)
    flag = flag_in(test.text)
    return bool(flag) and not flag.endswith("()") and sets_constant(last.text) and _copies(between[:-1])


def _copies(definitions: Iterable[Item]) -> bool:
    """True if each definition only hands a value on."""
    return all(isinstance(each, Definition) and each.kind in ("argument", "returned", "assign") for each in definitions)
