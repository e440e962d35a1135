"""What NCCL's own service says is shown beside the verdict, and decides nothing."""

from __future__ import annotations

from dataclasses import replace

from cases import case

from hangdoc import api
from hangdoc.model.codec import snapshot_from_bytes, snapshot_to_bytes
from hangdoc.model.merge import merge
from hangdoc.model.nccl import Communicator, CommunicatorMember, NcclStatus, OperationCount
from hangdoc.report.terminal import render

BEHIND = OperationCount("AllReduce", 60, 1, (CommunicatorMember(2, rank=2, pid=74, node="10.0.0.1"),))
STATUS = NcclStatus(
    (
        Communicator("ab", 2, counts=(OperationCount("Broadcast", 3, 1), OperationCount("Broadcast", 2, 1))),
        Communicator(
            "cf", 4, (CommunicatorMember(1, pid=9, node="10.0.0.2"),), 3, (OperationCount("AllReduce", 64, 3), BEHIND)
        ),
    ),
    5,
)


def test_it_is_shown_and_changes_nothing_else() -> None:
    job = api.load(case("callback_items"))
    before = api.diagnose(job)
    assert before.culprits == (2,)
    after = api.diagnose(replace(job, nccl=STATUS))
    told = [item for item in after.evidence if item.kind == "nccl"]
    assert [item.text for item in told] == [
        "NCCL has launched, in its communicator of 4 ranks, AllReduce calls: 64 on 3 ranks, 60 on rank 2",
        "NCCL has launched, in its communicator of 2 ranks, Broadcast calls: 3 on 1 rank, 2 on 1 rank",
        "NCCL's own threads get no answer from member 1 (process 9 on 10.0.0.2) and 2 more",
    ]
    assert told[0].ranks == (2,)
    assert replace(after, evidence=()) == replace(before, evidence=())
    assert "60 on rank 2" in " ".join(render(after, width=100).split())


def test_it_survives_the_disk_and_a_merge() -> None:
    job = replace(api.load(case("callback_items")), nccl=STATUS)
    assert snapshot_from_bytes(snapshot_to_bytes(job)).nccl == STATUS
    other = replace(job, nccl=None, hosts=(), ranks=())
    assert merge([job, other]).nccl == merge([other, job]).nccl == STATUS
