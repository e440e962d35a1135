"""What tests/accuracy/others.py reads out of the output of PyTorch's own tools (torch 2.13)."""

from __future__ import annotations

import pytest
from others import NOTHING, RIGHT, WRONG, judge, said_by_detail, said_by_torchfrtrace

MISMATCH = """\
tabulate is not installed. Proceeding without it.
Collective sequence number: 11 has errors
internal record id: 10
group info: 0:default_pg
collective: gloo:all_reduce
input sizes: [[262656]]
world size: 3
expected ranks: {0, 1, 2}
error msg: Culprit rank 1; Error type: COLLECTIVE_TYPE_MISMATCH, Expected collective type: 'all_reduce' does not \
match found collective type: 'barrier'
collective stack trace:\x20
 main at /job/train.py:50
"""
MISSING_LATER = """\
Not all ranks joining collective, sequence number: 12
internal record id: 11
group info: 0:default_pg
collective: gloo:all_reduce
missing ranks: {2}
expected ranks: {0, 1, 2}
"""
TWO_CULPRITS = """\
Collective sequence number: 1 has errors
group info: 0:default_pg
expected ranks: {0, 1, 2}
error msg: Culprit rank 0; Error type: COLLECTIVE_TYPE_MISMATCH, Expected collective type: 'barrier' does not match \
found collective type: 'all_reduce', Culprit rank 1; Error type: COLLECTIVE_TYPE_MISMATCH, Expected collective type: \
'barrier' does not match found collective type: 'all_reduce'
"""
THREE_GROUPS = """\
group info: 2
missing ranks: {2}
expected ranks: {2, 3}
group info: 1
missing ranks: {1}
expected ranks: {0, 1, 2}
group info: 0:default_pg
missing ranks: {0, 2, 3}
expected ranks: {0, 1, 2, 3}
"""
NO_DUMP = """\
We cannot decide what's wrong with this collective entry because we missed FR dumps from ranks ({1}) so we don't have \
enough information. If you want to debug further use -j to dump all raw trace
"""
NO_DUMP_EITHER = """\
    raise AssertionError(f"Missing dump files from ranks {missing}")
AssertionError: Missing dump files from ranks {1}
"""
AS_GLOO_DUMPS = """\
    pg_name = _pg_guids[(original_pg_name, first_rank)]
KeyError: ('0', 3)
"""


@pytest.mark.parametrize(
    ("output", "findings", "verdict"),
    [
        (MISMATCH, [{1}], RIGHT),
        (MISMATCH + MISSING_LATER, [{1}], RIGHT),  # of one group the first counts
        (TWO_CULPRITS, [{0, 1}], WRONG),
        (THREE_GROUPS, [{2}, {1}, {0, 2, 3}], WRONG),  # everybody is named
        (NO_DUMP * 3, [{1}], RIGHT),
        (NO_DUMP_EITHER, [{1}], RIGHT),
        (AS_GLOO_DUMPS, [], NOTHING),
        ("", [], NOTHING),
    ],
)
def test_torchfrtrace(output, findings, verdict):
    said = said_by_torchfrtrace(output)
    assert list(said.findings) == findings
    assert judge(said, (1,)) == verdict


def differ(one: int, other: int) -> str:
    return (
        f"[rank{one}]: RuntimeError: Detected mismatch between collectives on ranks. Rank {one} is running collective: "
        "CollectiveFingerPrint(SequenceNumber=4, OpType=ALLREDUCE, TensorShape=[], TensorDtypes=Float), but "
        f"Rank {other} is running collective: CollectiveFingerPrint(SequenceNumber=0OpType=REDUCE).Collectives differ "
        "in the following aspects: \t Sequence number: 4vs 0  Op type: ALLREDUCEvs REDUCE\n"
    )


WAITS = (
    "[rank2]:[E1120 15:43:17.994981214 ProcessGroupGloo.cpp:67] Rank 2 successfully reached monitoredBarrier, but "
    "received errors while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.\n"
)
FAILED = (
    "[rank0]:[E1120 15:39:53.996166597 ProcessGroupGloo.cpp:2901] [Rank 0]: Rank 1 failed to pass monitoredBarrier in "
    "10000 ms\n[rank0]: RuntimeError: [Rank 0]: Ranks 1 failed to pass monitoredBarrier in 10000 ms\n"
)
TWO_FAILED = (
    "[rank0]:[E1120 15:45:41.116171958 ProcessGroupGloo.cpp:2901] [Rank 0]: Rank 1 failed to pass monitoredBarrier in "
    "10000 ms\n[rank0]: RuntimeError: [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 10000 ms\n"
)
NO_GRADIENT = "[rank1]: Parameter indices which did not receive grad for rank 1: 2 3\n"
NO_KEY = "torch.distributed.DistStoreError: wait timeout after 10000ms, keys: /default_pg/0//cpu//0/1\n"
GAVE_UP = (
    "[rank0]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:129] Timed out waiting "
    "10000ms for send operation to complete\n"
)


@pytest.mark.parametrize(
    ("output", "findings", "verdict"),
    [
        (differ(0, 1) + differ(1, 0) + differ(2, 1), [{1}], RIGHT),  # rank 1 is in every pair
        (differ(0, 1) + differ(1, 0), [{0, 1}], WRONG),
        (differ(2, 0), [{0, 2}], WRONG),
        (WAITS, [{0}], WRONG),
        (FAILED + WAITS, [{1}], RIGHT),
        (TWO_FAILED, [{1, 3}], WRONG),
        (NO_GRADIENT, [{1}], RIGHT),
        (NO_KEY + NO_KEY, [{1}], RIGHT),
        (GAVE_UP, [], NOTHING),
        ("", [], NOTHING),
    ],
)
def test_detail(output, findings, verdict):
    said = said_by_detail(output)
    assert list(said.findings) == findings
    assert judge(said, (1,)) == verdict
