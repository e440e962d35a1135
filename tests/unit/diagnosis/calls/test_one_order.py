"""What one communicator takes in order, from dumps whose times were lost in a copy: only the calls can prove a hang."""

from __future__ import annotations

from pathlib import Path

import pytest
from device_dumps import folder

from hangdoc import api

LONG_AFTER = 900_000.0
"""Seconds to the time of the files: nobody waits that long, so it is that of a copy."""
ROUND = {0: "[send>1,recv<2]", 1: "[send>2,recv<0]", 2: "[send>0,recv<1]"}


def outcome_of(where: Path, ranks: dict[int, str]) -> str:
    return str(api.diagnose(api.load(folder(where, ranks, after=LONG_AFTER))).outcome.value)


def test_a_call_before_a_batch_that_the_others_have_behind_it_is_a_circle(tmp_path: Path) -> None:
    ranks = {rank: f"{batch} {batch} {batch}* all_reduce*" for rank, batch in ROUND.items()}
    ranks[1] = f"{ROUND[1]} {ROUND[1]} all_reduce* {ROUND[1]}*"
    assert outcome_of(tmp_path, ranks) == "hang"


def test_messages_of_their_own_communicators_are_no_circle(tmp_path: Path) -> None:
    """A send outside of a batch may go past the all_reduce: no order between the two is known."""
    ranks = {0: "send>1 send>1* all_reduce*", 1: "recv<0 all_reduce* recv<0*"}
    assert outcome_of(tmp_path, ranks) == "blind"


@pytest.mark.parametrize("behind", range(3))
def test_dumps_of_different_moments_are_no_circle(tmp_path: Path, behind: int) -> None:
    """Two ranks are through with the batch that the third was still in when its dump was written."""
    ranks = {rank: f"{batch} {batch} {batch} all_reduce*" for rank, batch in ROUND.items()}
    ranks[behind] = f"{ROUND[behind]} {ROUND[behind]} {ROUND[behind]}*"
    assert outcome_of(tmp_path, ranks) == "blind"
