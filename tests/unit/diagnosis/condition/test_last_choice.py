"""The partner of the round before, as the caller's frame holds it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cases import case

from hangdoc import api
from hangdoc.diagnosis.condition.last_choice import last_partner
from hangdoc.diagnosis.context import Case
from hangdoc.model.process import Local

JOB = Case(api.load(case("draw_of_one_rank_alone_attach")))


@pytest.mark.parametrize(("rank", "now", "partner"), [(0, 6, 3), (1, 4, 0), (2, 5, 3), (3, 7, 2), (3, 6, None)])
def test_the_caller_still_holds_the_last_partner(rank: int, now: int, partner: int | None) -> None:
    assert last_partner(JOB, JOB.activities[rank], now) == partner


def test_a_round_that_made_no_exchange_has_set_no_partner() -> None:
    activity = JOB.activities[2]
    stack = tuple(
        replace(
            frame,
            locals=tuple(Local(e.name, "5") if e.name == "mixer.every" else e for e in frame.locals),
        )
        for frame in activity.stack
    )
    assert last_partner(JOB, replace(activity, stack=stack), 5) is None
