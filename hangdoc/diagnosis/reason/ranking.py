"""The order of the reasons: the likeliest first, as the evidence for each is weighed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from hangdoc.diagnosis.reason.evidence import NOTHING
from hangdoc.diagnosis.reason.judged import Reason
from hangdoc.diagnosis.weighing import shares
from hangdoc.model.tables import table


def ranked(weighed: Mapping[Reason, frozenset[str]]) -> list[Reason]:
    """The likeliest first, of those with what speaks for them; none where it is likelier that none of them is one.

    Example: `if batch.empty:` with a share of 0.8 before `for batch in loader:` with 0.1; nothing has 0.07.
    """
    alternatives: dict[Reason | None, frozenset[str]] = {None: NOTHING}
    alternatives.update(weighed)
    found = shares(alternatives, weights())
    several = [replace(each, share=share) for each, share in found.items() if each is not None]
    several.sort(key=lambda each: -each.share)  # the nearest first of those that are equal
    return several if several and several[0].share > found[None] else []


@cache
def weights() -> Mapping[str, float]:
    """Kind of evidence → its weight."""
    return {kind: float(row["weight"]) for kind, row in table(__package__, "weights").items()}
