"""Which actors wait for which, where each runs one method at a time."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.state.actor_calls import busy_actors
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import ActivityKind, WaitReason
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

FILE = "/job/league.py"
TEXT = """\
class Player:
    def match(self):
        return ray.get(self.opponent.act.remote(1))
    def act(self, x):
        return self.net(self.table.look.remote(x))
    def study(self):
        return ray.get(self.table.look.remote(1))
class Table:
    def look(self, x):
        return self.rows[x]
"""
LINES = {"Player.match": 3, "Player.act": 5, "Player.study": 7, "Table.look": 10}


def doing(rank: int, function: str) -> Activity:
    where = Frame(FILE, LINES[function], function)
    waits = function in ("Player.match", "Player.study")
    kind, reason = (ActivityKind.LOCK, WaitReason.TASK) if waits else (ActivityKind.COMPUTING, None)
    return Activity(rank, "node", 100 + rank, kind, "", where=where, stack=(where,), reason=reason)


@pytest.mark.parametrize(
    ("functions", "expected"),
    [
        (("Player.match", "Player.match"), {0: (1,), 1: (0,)}),
        # Rank 2 asks rank 0, which asks rank 1, which works: nobody is stuck.
        (("Player.match", "Player.act", "Player.match"), {0: (1,), 2: (1,)}),
        (("Player.match", "Player.study", "Table.look"), {0: (1,), 1: (2,)}),
        (("Player.match", "Player.match", "Player.match"), {0: (1, 2), 1: (0, 2), 2: (0, 1)}),
    ],
)
def test_who_waits_for_an_actor_that_may_go_on_is_not_stuck(
    functions: tuple[str, ...], expected: dict[int, tuple[int, ...]]
) -> None:
    activities = {rank: doing(rank, function) for rank, function in enumerate(functions)}
    assert busy_actors(activities, Sources((SourceText(FILE, "<module>", 1, TEXT),))) == expected
