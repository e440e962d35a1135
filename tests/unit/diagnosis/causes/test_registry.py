"""The registered rules and the catalogue: each knows the other, and no two rules of one explanation are on a par."""

from __future__ import annotations

import pytest
from cases import DATA

from hangdoc.diagnosis.causes.registry import RULES
from hangdoc.diagnosis.explanation import Explanation
from hangdoc.diagnosis.logs.reading import NO_CAUSE
from hangdoc.diagnosis.naming.codes import BY_WAIT, TABLE
from hangdoc.model.catalogue import catalogue


def stories(base: type = Explanation) -> list[type]:
    return [base, *(story for child in base.__subclasses__() for story in stories(child))]


def test_the_rules_name_exactly_the_codes_that_the_catalogue_calls_recognised() -> None:
    given = {code for rule in RULES for code in rule.codes} | {NO_CAUSE}
    given |= {code for rows in TABLE.values() for code, _ in rows} | {*BY_WAIT.values()}
    assert given == {code for code, entry in catalogue().items() if entry.recognised}


def test_every_code_that_is_recognised_has_a_saved_case() -> None:
    """Named by its expectation; and test_cases holds each rule to the codes that it declares."""
    folders = {path.name for path in DATA.iterdir()}
    assert folders == {code for code, entry in catalogue().items() if entry.recognised} | {"unnamed"}


@pytest.mark.parametrize("story", stories(), ids=lambda story: story.__name__)
def test_rules_of_one_explanation_have_an_order(story: type) -> None:
    orders = [rule.order for rule in RULES if issubclass(story, rule.explains)]
    assert len(orders) == len(set(orders))
    assert orders, "no rule answers for it"
