"""One call of a loop fewer: did a handler go on with the next round, after what the program raises itself?"""

from __future__ import annotations

import pytest
from made_calls import FILE, Made, made_calls

from hangdoc.diagnosis import diagnose
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.journal import Attribute
from hangdoc.model.kinds import Confidence

FIT = """
def fit(self):
    for doc in range(len(self.docs)):
        try:
            self.train(doc)
        except {caught}:
            {then}
    dist.barrier()

def train(self, doc):
    {first}
    dist.all_reduce(x)
    {last}

def check(self, doc):
    if doc.empty:
        raise BadDocument(doc)

class BadDocument(ValueError): pass
"""
REDUCE: Made = ("all_reduce", [(11, "train"), (4, "fit"), (30, "main")])
BARRIER: Made = ("barrier", [(7, "fit"), (30, "main")])
CALLS = {rank: [REDUCE] * (3 if rank == 2 else 4) + [BARRIER] * (rank == 2) for rank in range(3)}


def fitted(
    caught: str = "BadDocument",
    then: str = "self.skipped += 1",
    first: str = "self.check(doc)",
    last: str = "pass",
    skipped: tuple[int, ...] = (),
) -> Diagnosis:
    """``skipped``: what self.skipped is on each rank, where that is seen."""
    at = {0: 4, 1: 4, 2: 7}
    own = {r: [Attribute(FILE, at[r], "fit", "skipped", str(value), "self")] for r, value in enumerate(skipped)}
    text = FIT.format(caught=caught, then=then, first=first, last=last)
    return diagnose(made_calls(text, CALLS, attributes=own))


def code(found: Diagnosis) -> str:
    assert found.culprits == (2,)
    assert found.confidence == Confidence.LIKELY or found.cause is None or found.cause.code != "HD103"
    return found.cause.code if found.cause is not None else ""


@pytest.mark.parametrize(
    "changed",
    [
        {"caught": "KeyError"},
        {"then": "raise"},
        {"first": "pass", "last": "self.check(doc)"},
        {"first": "pass"},
        {"skipped": (1, 0, 0)},
    ],
)
def test_other_handlers_skip_no_round(changed: dict[str, str]) -> None:
    assert code(fitted(**changed)) == "HD102"  # type: ignore[arg-type]


def test_a_count_of_the_handler_agrees() -> None:
    assert code(fitted(skipped=(0, 0, 1))) == "HD103"
