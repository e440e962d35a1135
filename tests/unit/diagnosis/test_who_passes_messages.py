"""Who is to blame among ranks that wait for each other's messages: evidence weighed, no order of rules."""

from __future__ import annotations

import pytest
from cases import case

from hangdoc import api
from hangdoc.diagnosis.hypotheses.judge import hypotheses
from hangdoc.diagnosis.hypotheses.waits import SEND_FIRST
from hangdoc.diagnosis.verdict import prepared
from hangdoc.model.kinds import Confidence


def test_a_ring_that_sends_first_is_to_blame_as_a_whole() -> None:
    found = api.diagnose(case("send_cycle"))
    assert (found.culprits, found.confidence) == ((0, 1, 2), Confidence.LIKELY)
    assert "of the evidence" not in found.sure, "no share was measured of the form of a circle"


def test_the_last_rank_of_a_ring_is_at_no_other_distance_than_the_others() -> None:
    kinds = {kind for each in hypotheses(prepared(api.load(case("send_cycle")))) for kind in each.evidence}
    assert SEND_FIRST in kinds
    assert "its peer is at another distance" not in kinds


@pytest.mark.parametrize("name", ["recorded_micro_batches"])
def test_what_was_recorded_to_leave_a_message_out_is_certain(name: str) -> None:
    found = api.diagnose(case(name))
    assert found.confidence == Confidence.CERTAIN
    assert "came out otherwise there once" in found.why


def test_both_tags_are_told() -> None:
    assert "with tag 12, and rank 0 waits for tag 11" in api.diagnose(case("wrong_tag")).why
