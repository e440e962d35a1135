"""Which suspects are the likeliest: few weights, one for each kind of evidence.

A conditional logit (McFadden 1974): of the suspects of one job, each gets a share that grows with e to the sum of the
weights of what speaks for it. The weights are measured on the saved cases by ``tests/accuracy/who.py``, which also says
how well they do on programs that they were not measured on. Nobody asks anything in an order: evidence adds up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.hypotheses.calls import by_calls
from hangdoc.diagnosis.hypotheses.outliers import by_unlikeness
from hangdoc.diagnosis.hypotheses.suspects import Evidence, Ranks, Suspects
from hangdoc.diagnosis.hypotheses.waits import by_effect, by_waits
from hangdoc.model.tables import table


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """These ranks are to blame. ``share``: 0 to 1, of all suspects of the job together 1."""

    culprits: Ranks
    share: float
    evidence: Evidence
    """For and against: each kind counts by its weight."""


def hypotheses(case: Case) -> list[Hypothesis]:
    """The likeliest first; none where no rank was seen.

    Example: rank 2 alone is a root, and 0 and 1 wait in one call → (2,) with a share of 0.93, then (0,) and (1,).
    """
    found = suspected(case)
    weighs = weights()
    sums = {ranks: sum(weighs.get(kind, 0.0) for kind in kinds) for ranks, kinds in found.items()}
    highest = max(sums.values(), default=0.0)
    powers = {ranks: math.exp(each - highest) for ranks, each in sums.items()}
    whole = sum(powers.values())
    judged = [Hypothesis(ranks, powers[ranks] / whole, kinds) for ranks, kinds in found.items()]
    return sorted(judged, key=lambda each: (-each.share, each.culprits))


def suspected(case: Case) -> Mapping[Ranks, Evidence]:
    """All suspects and the evidence, before anybody weighs it."""
    suspects = Suspects(case)
    for gather in (by_waits, by_calls, by_unlikeness, by_effect):
        gather(suspects)
    return suspects.evidence()


@cache
def weights() -> Mapping[str, float]:
    """Kind of evidence → its weight; a kind without one says nothing."""
    return {kind: float(row["weight"]) for kind, row in table(__package__, "weights").items()}
