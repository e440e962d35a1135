"""How evidence is weighed, of ranks as of reasons: it adds up, and nobody asks anything in an order.

A conditional logit (McFadden 1974): of the alternatives in one job, each gets a share that grows with e to the sum of
the weights of what speaks for it. Weights are measured on saved cases (``tests/accuracy/who.py``, ``why.py``), which
also print how well they do on programs that they were not measured on.

Example: weights {'near': 1.0, 'odd': 2.0}, alternatives {'a': {'near'}, 'b': {'near', 'odd'}} → a 0.12, b 0.88.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping
from functools import cache
from typing import TypeVar

from hangdoc.model.tables import table

_H = TypeVar("_H", bound=Hashable)


def shares(alternatives: Mapping[_H, Collection[str]], weights: Mapping[str, float]) -> dict[_H, float]:
    """What each gets, all together 1; a kind of evidence without a weight says nothing."""
    sums = {each: math.fsum(weights.get(kind, 0.0) for kind in kinds) for each, kinds in alternatives.items()}
    highest = max(sums.values(), default=0.0)
    powers = {each: math.exp(found - highest) for each, found in sums.items()}
    whole = math.fsum(powers.values())
    return {each: power / whole for each, power in powers.items()}


@cache
def weights_of(package: str) -> Mapping[str, float]:
    """Kind of evidence → its weight, of the ``weights.toml`` of a package; a kind without one says nothing."""
    return {kind: float(row["weight"]) for kind, row in table(package, "weights").items()}
