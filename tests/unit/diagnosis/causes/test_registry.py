"""The registered rules and the catalogue: each knows the other, and no two rules of one explanation are on a par."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cases import DATA, case, names

from hangdoc import api
from hangdoc.diagnosis.causes import registry
from hangdoc.diagnosis.causes.registry import RULES
from hangdoc.diagnosis.explanation import Explanation
from hangdoc.model.catalogue import catalogue


def stories(base: type = Explanation) -> list[type]:
    return [base, *(story for child in base.__subclasses__() for story in stories(child))]


def test_the_rules_name_exactly_the_codes_that_the_catalogue_calls_recognised() -> None:
    given = {code for rule in RULES for code in rule.codes}
    assert given == {code for code, entry in catalogue().items() if entry.recognised}


def test_every_code_that_is_recognised_has_a_saved_case() -> None:
    folders = {path.name for path in DATA.iterdir()}
    assert folders == {code for code, entry in catalogue().items() if entry.recognised} | {"unnamed"}


@pytest.mark.parametrize("story", stories(), ids=lambda story: story.__name__)
def test_rules_of_one_explanation_have_an_order(story: type) -> None:
    orders = [rule.order for rule in RULES if issubclass(story, rule.explains)]
    assert len(orders) == len(set(orders))
    assert orders, "no rule answers for it"


@pytest.mark.timeout(900)
def test_rules_answer_with_the_codes_that_they_declare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a third of the cases, and one at least of each cause. A rule without codes gives a verdict without a cause.

    What each case is answered with is pinned elsewhere.
    """
    answers: dict[str, set[str]] = {}

    def recorded(rule: registry.Rule) -> registry.Rule:
        def find(*arguments):
            finding = rule.find(*arguments)
            if finding is not None:
                answers.setdefault(rule.find.__name__, set()).add(finding.code)
            return finding

        return replace(rule, find=find)

    monkeypatch.setattr(registry, "RULES", [recorded(rule) for rule in RULES])
    of_each_cause = {case(name).parent: name for name in names()}
    for name in sorted({*names()[::3], *of_each_cause.values()}):
        api.diagnose(case(name))
    declared = {rule.find.__name__: set(rule.codes) or {""} for rule in RULES}
    assert {name: codes for name, codes in answers.items() if not codes <= declared[name]} == {}
    assert set().union(*answers.values()) == set(catalogue()) | {""}, "a code that no case has"
