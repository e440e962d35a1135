"""What ranks issued, in one order: made once for all that issue the same."""

from __future__ import annotations

from hangdoc.diagnosis.calls.events import Events
from hangdoc.diagnosis.calls.history import programs
from hangdoc.model.journal import Call, Journal, PointToPoint, ProcessGroup
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

WORLD = ProcessGroup("0", (0, 1, 2, 3), "default_pg")
STACKS = ((Frame("/job/train.py", 3, "train"),), (Frame("/job/train.py", 4, "train"),))
CALLS = tuple(Call("0", n, n, "all_reduce", 0, ((4,),), created_ns=10 * n) for n in range(1, 4))
SENDS = tuple(PointToPoint("0", n, "isend" if n else "irecv", 1, 0, 1, 5, batch=1) for n in range(2))


def events(*journals: Journal) -> Events:
    ranks = tuple(RankSnapshot(rank, "", "dump", journal=journal) for rank, journal in enumerate(journals))
    return Events(programs(JobSnapshot(1.0, "dump", world_size=len(ranks), ranks=ranks)))


def test_ranks_that_share_their_calls_share_the_events_and_others_have_their_own() -> None:
    common = Journal("dump", (WORLD,), CALLS, stacks=STACKS)
    own = Journal("dump", (WORLD,), CALLS[:2], stacks=STACKS)
    renamed = Journal("dump", (ProcessGroup("0", (0, 1, 2, 3), "mesh_dp"),), CALLS, stacks=STACKS)
    found = events(common, common, own, renamed)
    assert found.of(0) is found.of(1)
    assert [event.number for event in found.of(2)] == [1, 2]
    assert [event.role[0] for event in found.of(0)] == ["default_pg"] * 3
    assert [event.role[0] for event in found.of(3)] == ["mesh_dp"] * 3


def test_a_batch_is_one_event_between_the_calls_by_its_time_and_its_peers_are_places_in_the_group() -> None:
    pair = ProcessGroup("0", (3, 1), "stages")
    journal = Journal("dump", (pair,), CALLS[:1], SENDS, stacks=STACKS)
    batch, call = events(journal).of(0)
    assert (batch.op, batch.peers, batch.is_message, call.is_message) == ("batch_isend_irecv", (1,), True, False)
    assert batch.role[:2] == ("stages", (("irecv", 1), ("isend", 1)))
    assert batch.path == (("/job/train.py", "train", 4),)
    assert (batch.frame, call.frame) == (STACKS[1][0], STACKS[0][0])
