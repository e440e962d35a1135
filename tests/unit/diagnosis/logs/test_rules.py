"""What may be concluded from logs, one test for each rule."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_logs import Torch, elastic, traceback, verdict

from hangdoc.model.kinds import Confidence, Outcome

T = Torch()
EVERY = ("1.12", "2.0", "2.1", "2.2", "2.3", "2.4", "2.5", "2.8", "2.14")


def _code(found: object) -> str | None:
    cause = getattr(found, "cause", None)
    return cause.code if cause is not None else None


@pytest.mark.parametrize("version", ["2.3", "2.4", "2.5", "2.8", "2.14"])
def test_a_lower_count_names_the_missing_rank_for_certain(tmp_path: Path, version: str) -> None:
    """R1."""
    torch = Torch(version)
    others = "".join(torch.overdue(rank, 40) for rank in (0, 1, 3))
    found = verdict(tmp_path, train=others + torch.lives(2, caller=0, enqueued=39))
    assert (found.outcome, found.culprits, found.confidence) == (Outcome.HANG, (2,), Confidence.CERTAIN)
    assert _code(found) == "HD113"
    assert "#39" in found.verdict
    assert "not finished issuing" in found.verdict


def test_a_rank_that_lives_on_without_a_time_out_was_not_in_the_call(tmp_path: Path) -> None:
    """R2: the numbers in its line are the default group's, and say nothing of this group."""
    others = "".join(T.overdue(rank, 58, "_ALLGATHER_BASE", (8, 32), group="9", about="dp") for rank in (0, 1, 2))
    ends = elastic((0, -6, "10:01:00"), (1, -6, "10:01:00"), (2, -6, "10:01:00"), (3, -15, "10:01:01"), asked=(3,))
    found = verdict(tmp_path, train=others + T.lives(3, caller=1) + ends)
    assert (found.culprits, found.confidence) == ((3,), Confidence.LIKELY)
    unfinished = verdict(tmp_path, train=others + T.lives(3, caller=1))
    assert (unfinished.culprits, unfinished.confidence) == ((3,), Confidence.POSSIBLE)


@pytest.mark.parametrize("version", ["2.0", "2.2", "2.3", "2.8"])
def test_another_operation_at_the_same_number(tmp_path: Path, version: str) -> None:
    """R3."""
    torch = Torch(version)
    text = "".join(torch.overdue(rank, 917) for rank in (0, 1, 3, 4)) + torch.overdue(
        2, 917, "_ALLGATHER_BASE", (8, 40)
    )
    found = verdict(tmp_path, train=text)
    assert (found.culprits, found.confidence, _code(found)) == ((2,), Confidence.LIKELY, "HD106")
    assert "_ALLGATHER_BASE #917" in found.verdict
    assert "ALLREDUCE #917" in found.verdict


def test_two_ranks_with_other_operations_are_a_pair(tmp_path: Path) -> None:
    """R3, of two ranks."""
    found = verdict(tmp_path, train=T.overdue(0) + T.overdue(1, 7, "BROADCAST"))
    assert (found.culprits, found.confidence, _code(found)) == ((), Confidence.POSSIBLE, "HD106")
    assert set(found.alternatives) == {(0,), (1,)}


def test_the_only_silent_member_is_a_candidate(tmp_path: Path) -> None:
    """R4: of a whole log its own stream makes it likely, without one it is possible."""
    text = {f"job_{rank}.out": "step 1\n" + T.overdue(rank, 9, "_REDUCE_SCATTER_BASE", (32, 8)) for rank in (0, 1, 3)}
    killed = "srun: error: n1: tasks 0-1,3: Aborted (core dumped)\nslurmstepd: error: *** STEP 4.0 CANCELLED ***\n"
    killed += "srun: error: n1: task 2: Killed\n"
    shown = verdict(tmp_path / "a", **text, **{"job_2.out": "step 1\nrepacking block 9\n"}, slurm=killed)
    assert (shown.culprits, shown.confidence) == ((2,), Confidence.LIKELY)
    assert "repacking block 9" in shown.why
    assert "HD402" not in shown.to_json()
    silent = verdict(tmp_path / "b", **text)
    assert (silent.culprits, silent.confidence) == ((2,), Confidence.POSSIBLE)


def test_all_have_issued_it_nobody_left_the_order(tmp_path: Path) -> None:
    """R5: also those whose own count is past the call."""
    text = "".join(T.overdue(rank, 12, "_ALLGATHER_BASE", (8, 32), enqueued=20) for rank in (0, 1, 3))
    found = verdict(tmp_path, train=text + T.lives(2, caller=0, enqueued=20))
    assert (found.culprits, found.confidence, _code(found)) == ((), Confidence.CERTAIN, "HD602")
    assert "no rank left the order" in found.verdict


_DESYNC = """[rank0]:[E309 10:00:00.000000000 ProcessGroupNCCL.cpp:1937] Rank 0
\t - [0] Timeout at collective: ALLREDUCE, #402
\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:
\t     [2] finished collective #401, but didn't join collective #402 (count from 1)
\t - Snapshot of ranks' latest states:
\t   #401 finished ranks:
\t     [2] finished ALLREDUCE
\t   #402 started ranks:
\t     [0, 1, 3] started ALLREDUCE
"""


def test_torch_s_desync_report_is_taken_over_in_its_words(tmp_path: Path) -> None:
    """R6."""
    found = verdict(tmp_path, train=T.overdue(0, 402) + _DESYNC + T.overdue(1, 402) + T.overdue(3, 402))
    assert (found.culprits, found.confidence, _code(found)) == ((2,), Confidence.LIKELY, "HD113")
    assert "did not call" not in found.to_json()


def test_torchfrtrace_s_missing_ranks(tmp_path: Path) -> None:
    """R6, of torchfrtrace."""
    text = (
        "Not all ranks joining collective: sequence number: 31\ninternal record id: 30\ngroup info: 0:default_pg\n"
        "collective: nccl:all_reduce\nmissing ranks: {1}\ninput sizes: [[8]]\noutput sizes: [[8]]\nworld size: 4\n"
        "expected ranks: {0, 1, 2, 3}\ncollective state: scheduled\n"
    )
    found = verdict(tmp_path, trace=text)
    assert (found.outcome, found.culprits) == (Outcome.HANG, (1,))
    assert "#31" in found.verdict


def test_the_first_call_of_a_group_points_to_its_set_up(tmp_path: Path) -> None:
    """R7."""
    text = "".join(T.overdue(rank, 1, "ALLGATHER", (1, 3), completed=-1) for rank in range(3))
    found = verdict(tmp_path, train=text)
    assert _code(found) == "HD602"
    assert "NCCL_SOCKET_IFNAME" in found.fix


def _mesh() -> str:
    members = [(r, r, 4, "0") for r in range(4)]
    members += [(0, 0, 2, "5"), (1, 1, 2, "5"), (2, 0, 2, "6"), (3, 1, 2, "6")]
    return "".join(T.member(*each) for each in members)


def test_a_circle_of_two_groups(tmp_path: Path) -> None:
    """R8: 0 to 2 wait in one group for 3, which waits in another one for them."""
    members = "".join(T.member(r, r, 4, group) for group in ("7", "8") for r in range(4))
    text = "".join(T.overdue(r, 212, group="7") for r in range(3)) + T.overdue(3, 97, group="8")
    found = verdict(tmp_path, train=members + text)
    assert (found.culprits, found.confidence, _code(found)) == ((3,), Confidence.LIKELY, "HD107")
    assert "#212" in found.verdict
    assert "#97" in found.verdict


def test_waits_are_followed_across_groups_to_a_rank_that_waits_for_nobody(tmp_path: Path) -> None:
    """R8: 0 waits for 1, 1 and 2 wait in the default group, 3 is behind there."""
    text = _mesh() + T.overdue(0, 30, group="5") + T.overdue(1, 9) + T.overdue(2, 9) + T.lives(3, caller=1, enqueued=8)
    found = verdict(tmp_path, train=text)
    assert found.culprits == (3,)


def test_sizes_give_the_number_of_members(tmp_path: Path) -> None:
    """R9: three of three are there, four of four are not."""
    whole = verdict(tmp_path / "a", train="".join(T.overdue(r, 9, "_ALLGATHER_BASE", (8, 24)) for r in range(3)))
    assert (_code(whole), whole.culprits) == ("HD602", ())
    short = verdict(tmp_path / "b", train="".join(T.overdue(r, 9, "_ALLGATHER_BASE", (8, 32)) for r in range(3)))
    assert _code(short) != "HD602"
    assert short.culprits == (3,)
    assert short.confidence == Confidence.POSSIBLE


def test_unequal_sizes(tmp_path: Path) -> None:
    """R10."""
    text = "".join(T.overdue(r, 9, sizes=(64, 64)) for r in (0, 2, 3)) + T.overdue(1, 9, sizes=(48, 48))
    found = verdict(tmp_path, train=text)
    assert (found.culprits, found.confidence, _code(found)) == ((1,), Confidence.LIKELY, "HD104")
    assert "48 elements" in found.verdict


@pytest.mark.parametrize("op", ["ALLTOALL_BASE", "GATHER", "SCATTER", "SEND"])
def test_sizes_that_may_differ_are_no_fault(tmp_path: Path, op: str) -> None:
    """R10's limits."""
    found = verdict(
        tmp_path, train=T.overdue(0, 9, op, (64, 0)) + T.overdue(1, 9, op, (48, 0)) + T.overdue(2, 9, op, (64, 64))
    )
    assert _code(found) != "HD104"


def test_a_rank_s_own_exception_before_the_first_time_out(tmp_path: Path) -> None:
    """R11: it ended, or it lived on."""
    failed = traceback(2, "ValueError: ragged batch", ("/job/train.py", 90, "main"), ("/job/data.py", 31, "collate"))
    others = "".join(T.overdue(rank, 40) for rank in (0, 1, 3))
    members = "".join(T.member(r, r, 4, "0") for r in range(4))
    gone = verdict(tmp_path / "a", train=members + failed + others)
    assert (gone.culprits, _code(gone)) == ((2,), "HD401")
    assert "data.py:31" in gone.verdict
    lived = verdict(tmp_path / "b", train=members + failed + others + T.lives(2, caller=0, enqueued=39))
    assert (lived.culprits, _code(lived)) == ((2,), "HD103")


def test_an_exception_in_a_shared_file_without_a_rank_is_nobody_s(tmp_path: Path) -> None:
    """R11's limit."""
    failed = traceback(None, "ValueError: ragged batch", ("/job/data.py", 31, "collate"))
    found = verdict(tmp_path, train=failed + T.overdue(0, 40) + T.overdue(1, 40))
    assert found.culprits == ()


def test_monitored_barrier_names_who_did_not_come(tmp_path: Path) -> None:
    """R12."""
    text = traceback(
        0, "RuntimeError: [Rank 0]: Ranks 2, 3 failed to pass monitoredBarrier in 30000 ms", ("/job/a.py", 4, "main")
    )
    found = verdict(tmp_path / "a", train=text)
    assert found.culprits in ((2, 3), ())
    assert "ranks 2 and 3" in found.verdict.lower()
    reached = (
        "RuntimeError: Rank {} successfully reached monitoredBarrier, but received errors while waiting for send/recv from "
        "rank 0. Please check rank 0 logs for faulty rank.\n[rank{}]:  Original exception: \n[rank{}]: [gloo/transport/tcp/"
        "unbound_buffer.cc:133] Timed out waiting 900000ms for {} operation to complete"
    )
    victims = "".join(traceback(r, reached.format(r, r, r, "send"), ("/job/a.py", 4, "main")) for r in (1, 2))
    assert verdict(tmp_path / "b", train=victims).culprits == (0,)
    inside = "".join(traceback(r, reached.format(r, r, r, "recv"), ("/job/a.py", 4, "main")) for r in (1, 2))
    assert verdict(tmp_path / "c", train=inside).culprits == ()


_RAS = """NCCL version 2.27.3 compiled with CUDA 12.8

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          4            1          4        4

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         4         4         4   RUNNING  MISMATCH

Warnings
========

#0-0 (9c11f02be4a7d613) MISMATCH
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 208
  1 ranks have launched up to operation 207
  Rank 2 -- GPU 2 managed by process 81412 on node 192.0.2.17
"""


def test_ras_counts(tmp_path: Path) -> None:
    """R13."""
    found = verdict(tmp_path, ras=_RAS)
    assert (found.culprits, found.confidence) == ((2,), Confidence.LIKELY)
    assert "#207" in found.verdict


def test_rendezvous(tmp_path: Path) -> None:
    """R14."""
    text = "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 3/4 clients joined."
    found = verdict(tmp_path / "a", train=traceback(0, text, ("/job/a.py", 4, "main")))
    assert _code(found) == "HD301"
    assert "3 of 4" in found.verdict
    unique = (
        "RuntimeError: [{0}] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by "
        "key '0', but store->get('0') got error: Socket Timeout"
    )
    late = "".join(traceback(r, unique.format(r), ("/job/a.py", 4, "main")) for r in (1, 2))
    assert verdict(tmp_path / "b", train="[default0]:loading\n" + late).culprits == (0,)
    away = "torch.distributed.DistNetworkError: The client socket has timed out after 60s while trying to connect to (h0, 29500)."
    nobody = verdict(tmp_path / "c", train=traceback(1, away, ("/job/a.py", 4, "main")))
    assert (_code(nobody), nobody.culprits) == ("HD302", ())


def test_ends(tmp_path: Path) -> None:
    """R15: the first end that nobody asked for; equal seconds tie; a lone kill comes from outside."""
    text = elastic((2, 1, "10:00:00"), (0, -15, "10:00:01"), (1, -9, "10:00:31"), asked=(0, 1))
    found = verdict(tmp_path / "a", console=text)
    assert (found.outcome, found.culprits, _code(found)) == (Outcome.CRASHED, (2,), "HD401")
    tie = verdict(
        tmp_path / "b", console=elastic((2, 1, "10:00:00"), (4, 1, "10:00:00"), (0, -15, "10:00:01"), asked=(0,))
    )
    assert tie.culprits == (2, 4)
    killed = verdict(tmp_path / "c", console=elastic((1, -9, "10:00:00"), (0, -15, "10:00:01"), asked=(0,)))
    assert (killed.culprits, _code(killed)) == ((1,), "HD402")


def _coll(pid: int, rank: int, *calls: tuple[str, str, int, int]) -> str:
    text = f"n1:{pid}:{pid} [0] NCCL INFO ncclCommInitRank comm 0x55 rank {rank} nranks 4 cudaDev 0 busId 1a commId 0x7b - Init\n"
    for number, op, count, root in calls:
        text += (
            f"n1:{pid}:{pid} [0] NCCL INFO {op}: opCount {number} sendbuff 0x1 recvbuff 0x2 count {count} datatype 7 op 0 "
            f"root {root} comm 0x55 [nranks=4] stream 0x9\n"
        )
    return text


@pytest.mark.parametrize(
    ("odd", "code"),
    [
        (("2b", "Broadcast", 64, 1), "HD105"),
        (("2b", "Broadcast", 48, 0), "HD104"),
        (("2b", "AllReduce", 64, 0), "HD106"),
    ],
)
def test_nccl_s_own_list_of_calls(tmp_path: Path, odd: tuple[str, str, int, int], code: str) -> None:
    """R16: by NCCL's count, which is hexadecimal."""
    calls = [("2a", "AllReduce", 8, 0), ("2b", "Broadcast", 64, 0)]
    files = {f"nccl_{r}": _coll(100 + r, r, *(calls if r != 2 else [calls[0], odd])) for r in range(4)}
    found = verdict(tmp_path, **files)
    assert (found.culprits, _code(found)) == ((2,), code)
    assert "#43" in found.verdict


def test_nccl_s_count_that_stands_still_is_replaced_by_the_order_of_lines(tmp_path: Path) -> None:
    """R16, NCCL 2.27 on one node."""
    same = [("0", "AllReduce", 8, 0)] * 3
    files = {
        f"nccl_{r}": _coll(100 + r, r, *(same if r != 2 else [*same[:2], ("0", "AllReduce", 6, 0)])) for r in range(4)
    }
    found = verdict(tmp_path, **files)
    assert (found.culprits, _code(found)) == ((2,), "HD104")


def test_call_sites_in_the_log(tmp_path: Path) -> None:
    """R19: the line is given where all agree; two lines are two sides, never more than possible."""
    here = (
        "all_reduce from /opt/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:2954",
        "step from /job/train.py:44",
    )
    there = (here[0], "evaluate from /job/train.py:90")
    alike = verdict(
        tmp_path / "a", train="".join(T.overdue(r, 9, "_ALLGATHER_BASE", (8, 24), stack=here) for r in range(3))
    )
    assert "train.py:44" in alike.verdict
    apart = "".join(T.overdue(r, 9, stack=here) for r in (0, 1)) + T.overdue(2, 9, stack=there)
    unlike = verdict(tmp_path / "b", train=apart)
    assert unlike.confidence == Confidence.POSSIBLE
    assert "train.py:90" in unlike.verdict


def test_a_later_call_that_started_first(tmp_path: Path) -> None:
    """R20."""
    torch = Torch("2.14")
    text = "".join(
        torch.overdue(r, 27, "_REDUCE_SCATTER_BASE", (32, 16), enqueued=46, started=28, completed=26) for r in range(2)
    )
    found = verdict(tmp_path, train=text)
    assert _code(found) == "HD602"
    assert "#28 before #27" in found.why


def test_a_message_that_nobody_sent(tmp_path: Path) -> None:
    """R21: in a server without load it is no fault."""
    members = "".join(T.member(r, r, 2, "0") for r in range(2))
    found = verdict(tmp_path, train=members + T.overdue(1, 1876, "RECV") + T.lives(0, caller=1, enqueued=3751))
    assert (found.culprits, found.confidence, _code(found)) == ((0,), Confidence.POSSIBLE, "HD202")
    assert "without load" in found.why


def test_one_rank_alone_after_the_others_have_left(tmp_path: Path) -> None:
    """R22: one call too many, or the others left one out."""
    torch = Torch("2.1")
    work = "".join(f"{r}: epoch 3\n" for r in range(4)) + "".join(f"{r}: fit done\n" for r in (1, 2, 3))
    late = "".join(f"0: {line}\n" for line in torch.overdue(0, 44).splitlines())
    found = verdict(tmp_path, srun=work + late + "srun: error: n1: task 0: Aborted (core dumped)\n")
    assert found.confidence == Confidence.POSSIBLE
    assert found.culprits in ((0,), ())
    assert (1, 2, 3) in (*found.alternatives, found.culprits)


@pytest.mark.parametrize("version", EVERY)
def test_what_every_version_writes_is_read(tmp_path: Path, version: str) -> None:
    """Rank, operation and, since 1.13, the number."""
    torch = Torch(version)
    texts = {f"job_{r}.out": torch.overdue(r, 33) for r in range(3)}
    found = verdict(tmp_path, **texts)
    assert found.outcome == Outcome.HANG
    assert "ALLREDUCE" in found.verdict
    assert ("#33" in found.verdict) == (version != "1.12")
    assert found.culprits == ()
