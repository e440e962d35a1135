"""Circles in which each rank comes to the one that waits for it later, in its loop over its peers."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.condition import later_in_turn
from hangdoc.diagnosis.condition.later_in_turn import all_in_turn
from hangdoc.diagnosis.context import Case
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.process import Frame, Local
from hangdoc.model.snapshot import JobSnapshot, SourceText

FILE = "/job/mix.py"
TEXT = "def mix(peers):\n    for peer in peers:\n        swap(peer)\n"
CASE = Case(JobSnapshot(taken=0.0, mode="attach", sources=(SourceText(FILE, "<module>", 1, TEXT),)))


def at(rank: int, peer: int, peers: str) -> Activity:
    frame = Frame(FILE, 3, "mix", (Local("peers", peers), Local("peer", str(peer))))
    return Activity(rank, "node0", 1, ActivityKind.RECV, "recv", frame, (frame,), peer=peer)


RING = [at(0, 1, "[1, 2]"), at(1, 2, "(2, 0)"), at(2, 0, "[0, 1]")]


@pytest.fixture(autouse=True)
def same_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later_in_turn, "rounds_of", lambda *_: None)


def test_each_comes_to_the_one_that_waits_for_it() -> None:
    found = all_in_turn(CASE, RING)
    assert found is not None
    assert found.line == 2


@pytest.mark.parametrize(
    "other",
    [
        at(2, 0, "[1, 0]"),  # it has passed rank 1
        at(2, 0, "[0]"),
        at(2, 0, "[0, 1, ...]"),
        at(2, 0, "[0, 1, 1]"),
        at(2, 0, "<Peers>"),
    ],
)
def test_one_of_them_may_have_left_a_message_out(other: Activity) -> None:
    assert all_in_turn(CASE, [*RING[:2], other]) is None


def test_ranks_in_different_rounds_may_have_left_one_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later_in_turn, "rounds_of", lambda *_: ([4], [5]))
    assert all_in_turn(CASE, RING) is None
