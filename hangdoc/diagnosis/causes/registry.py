"""Which rule names which explanation.

A rule looks at the case and the blame, never at names of files or programs, and answers with a ``Finding`` or None.
It is registered for the explanations that it can name. Of those registered for one explanation the first that
answers, by ``order``, names the cause; none of them changes who is to blame.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation

_Function = TypeVar("_Function", bound=Callable[[Case, Blame[Any]], Finding | None])


@dataclass(frozen=True, slots=True)
class Rule:
    """``find`` as it was registered. ``codes``: those of the catalogue that it can answer with; none for a verdict
    without a cause."""

    codes: tuple[str, ...]
    explains: tuple[type[Explanation], ...]
    order: int
    find: Callable[[Case, Blame[Any]], Finding | None]


RULES: list[Rule] = []
"""All rules, as their modules were imported."""


def cause(
    *codes: str, explains: type[Explanation] | tuple[type[Explanation], ...], order: int
) -> Callable[[_Function], _Function]:
    """Register a rule for the explanations that it can name.

    ``order`` is its place among the rules of the same explanation: the one that says more comes first.
    """

    def register(function: _Function) -> _Function:
        stories = explains if isinstance(explains, tuple) else (explains,)
        RULES.append(Rule(codes, stories, order, function))
        return function

    return register


def name_cause(case: Case, blame: Blame[Explanation]) -> Finding | None:
    """The finding of the first rule that fits this explanation; None where none does."""
    for rule in sorted(RULES, key=lambda rule: rule.order):
        if isinstance(blame.found, rule.explains):
            finding = rule.find(case, blame)
            if finding is not None:
                return finding
    return None
