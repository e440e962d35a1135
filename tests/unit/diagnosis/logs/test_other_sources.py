"""Jobs whose logs have no watchdog's lines: time-outs of gloo and the store, children of mp.spawn, launchers' words."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_logs import Torch, elastic, traceback, verdict

from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.kinds import Confidence, Outcome

T = Torch()
LIB = "/opt/env/lib/python3.11/site-packages"
C10D = (f"{LIB}/torch/distributed/c10d_logger.py", 83, "wrapper")
GLOO = "RuntimeError: [third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:129] Timed out waiting 8000ms for {} operation to complete"
CLOSED = "RuntimeError: [third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:53947"


def _code(found: Diagnosis) -> str | None:
    return found.cause.code if found.cause is not None else None


def _timed_out(rank: int, op: str = "all_reduce", line: int = 18, way: str = "recv") -> str:
    frames = (("/job/train.py", line, "train"), C10D, (f"{LIB}/torch/distributed/distributed_c10d.py", 3252, op))
    return traceback(rank, GLOO.format(way), *frames)


def test_a_rank_without_gloo_s_time_out_is_missing_in_the_others_call(tmp_path: Path) -> None:
    ends = elastic((0, 1, "10:00:00"), (1, 1, "10:00:00"), (3, 1, "10:00:00"), (2, -15, "10:00:01"), asked=(2,))
    found = verdict(tmp_path, console=_timed_out(0) + _timed_out(1, way="send") + _timed_out(3) + ends)
    assert (found.outcome, found.culprits, found.confidence, _code(found)) == (
        Outcome.HANG,
        (2,),
        Confidence.LIKELY,
        "HD113",
    )
    assert "all_reduce at train.py:18" in found.verdict


@pytest.mark.parametrize("root", [0, 1, 3])
def test_whom_the_launcher_saw_fail_first_makes_no_difference(tmp_path: Path, root: int) -> None:
    order = [root, *(r for r in (0, 1, 3) if r != root)]
    ends = elastic(*((r, 1, "10:00:00") for r in order), (2, -15, "10:00:01"), asked=(2,), root=root)
    text = "".join(
        _timed_out(r) if r != 3 else traceback(3, CLOSED, ("/job/train.py", 18, "train"), C10D) for r in (0, 1, 3)
    )
    found = verdict(tmp_path, console=text + ends)
    assert found.culprits == (2,)


def test_time_outs_at_two_lines_are_compared_as_stacks_are(tmp_path: Path) -> None:
    text = _timed_out(0) + _timed_out(1) + _timed_out(2, "barrier", 40)
    found = verdict(tmp_path, console=text)
    assert found.outcome == Outcome.HANG
    assert found.confidence != Confidence.CERTAIN
    assert "train.py:40" in found.verdict
    assert "train.py:18" in found.verdict


def test_a_key_that_nobody_set(tmp_path: Path) -> None:
    error = "torch.distributed.DistStoreError: wait timeout after 6000ms, keys: /default_pg/0//vocab/ready"
    ends = elastic((1, 1, "10:00:00"), (2, 1, "10:00:00"), (0, -15, "10:00:01"), asked=(0,))
    text = "".join(traceback(r, error, ("/job/prepare.py", 13, "main")) for r in (1, 2))
    found = verdict(tmp_path, console=text + ends)
    assert (found.culprits, found.confidence) == ((0,), Confidence.LIKELY)
    assert "vocab/ready" in found.verdict
    assert "prepare.py:13" in found.verdict


def test_the_rank_that_the_rendezvous_lacks(tmp_path: Path) -> None:
    """One of four has no line at all, or tries another address."""
    clients = "torch.distributed.DistStoreError: Timed out after 9 seconds waiting for clients. 3/4 clients joined."
    keys = "torch.distributed.DistStoreError: wait timeout after 8000ms, keys: /default_pg/0//cpu//0/0"
    frames = (
        ("/job/a.py", 5, "main"),
        C10D,
        (f"{LIB}/torch/distributed/distributed_c10d.py", 1899, "init_process_group"),
    )
    joined = {
        f"rank{r}.log": f"rank {r} starts\n" + traceback(r, clients if r == 0 else keys, *frames) for r in (0, 1, 3)
    }
    absent = verdict(tmp_path / "a", **joined)
    assert (absent.culprits, _code(absent)) == ((2,), "HD301")
    assert "3 of 4" in absent.verdict
    away = "torch.distributed.DistNetworkError: The client socket has timed out after 8000ms while trying to connect to (h0, 29658)."
    elsewhere = verdict(tmp_path / "b", **joined, **{"rank2.log": "rank 2 starts\n" + traceback(2, away, *frames)})
    assert (elsewhere.culprits, _code(elsewhere)) == ((2,), "HD302")
    assert "29658" in elsewhere.why


def test_a_child_of_spawn(tmp_path: Path) -> None:
    text = (
        traceback(None, "torch.multiprocessing.spawn.ProcessRaisedException: ", ("/job/a.py", 22, "<module>"))
        + "\n-- Process 1 terminated with the following error:\n"
        + traceback(
            None,
            "ValueError: no metric",
            (f"{LIB}/torch/multiprocessing/spawn.py", 87, "_wrap"),
            ("/job/a.py", 9, "evaluate"),
        )
    )
    found = verdict(tmp_path, terminal=text)
    assert (found.outcome, found.culprits, _code(found)) == (Outcome.CRASHED, (1,), "HD401")
    assert "a.py:9" in found.verdict


def test_a_pipe_that_was_reset_outside_of_torch_is_a_rank_s_own_failure(tmp_path: Path) -> None:
    error = "ConnectionResetError: [Errno 104] Connection reset by peer"
    own = traceback(
        1, error, ("/job/loader.py", 13, "main"), ("/usr/lib/python3.11/multiprocessing/connection.py", 378, "_recv")
    )
    text = own + traceback(0, CLOSED, ("/job/train.py", 18, "train"), C10D)
    found = verdict(tmp_path, console=text + elastic((1, 1, "10:00:00"), (0, 1, "10:00:00"), root=0))
    assert (found.culprits, _code(found)) == ((1,), "HD401")


def test_calls_without_a_number(tmp_path: Path) -> None:
    """torch before 1.13 prints none: who is missing is told all the same, and unlike calls are not compared."""
    torch = Torch("1.12")
    work = "".join(f"{r}: step 4\n" for r in range(4))
    late = "".join(f"{r}: {line}\n" for r in (0, 1, 3) for line in torch.overdue(r, 9).splitlines())
    killed = "srun: error: n1: tasks 0-1,3: Aborted\nslurmstepd: error: *** STEP 4.0 ON n1 CANCELLED ***\nsrun: error: n1: task 2: Killed\n"
    found = verdict(tmp_path / "a", srun=work + late + killed)
    assert (found.culprits, _code(found)) == ((2,), "HD113")
    mixed = torch.overdue(0, 9) + torch.overdue(1, 9, "BROADCAST") + torch.overdue(2, 9)
    assert (
        _code(verdict(tmp_path / "b", **{f"r_{i}.out": text for i, text in enumerate(mixed.split("\n\n"))})) != "HD106"
    )


def test_a_kill_before_the_first_time_out_explains_who_is_missing(tmp_path: Path) -> None:
    members = "".join(T.member(r, r, 4, "0") for r in range(4))
    killed = "slurmstepd: error: Detected 1 oom_kill event in StepId=4.0.\nsrun: error: n3: task 2: Out Of Memory\n"
    found = verdict(tmp_path, srun=members + killed + "".join(T.overdue(r, 40) for r in (0, 1, 3)))
    assert (found.culprits, _code(found)) == ((2,), "HD402")
    assert "n3" in found.verdict


def test_a_fingerprint_of_a_call_without_tensors_counts(tmp_path: Path) -> None:
    """A barrier has no tensors; only number 0 without tensors stands for no call."""
    both = "RuntimeError: Detected mismatch between collectives on ranks. Rank {} is running collective: CollectiveFingerPrint({}), but Rank {} is running collective: CollectiveFingerPrint({}).Collectives differ"
    gather = "SequenceNumber=5, OpType=GATHER, TensorShape=[4], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float)"
    text = traceback(
        0,
        both.format(0, "SequenceNumber=5OpType=BARRIER", 1, "SequenceNumber=0OpType=GATHER"),
        ("/job/a.py", 11, "main"),
    )
    text += "".join(
        traceback(r, both.format(r, gather, 0, "SequenceNumber=0OpType=REDUCE"), ("/job/a.py", 14, "main"))
        for r in (1, 2, 3)
    )
    found = verdict(
        tmp_path, train=text + elastic((2, 1, "10:00:00"), *((r, -15, "10:00:01") for r in (0, 1, 3)), asked=(0, 1, 3))
    )
    assert (found.outcome, found.culprits, _code(found)) == (Outcome.CRASHED, (0,), "HD106")
    assert "a.py:11" in found.verdict


def test_monitored_barrier_with_wait_all_ranks(tmp_path: Path) -> None:
    failed = "[rank0]:[E309 21:31:34.9 ProcessGroupGloo.cpp:2901] [Rank 0]: Rank {} failed to pass monitoredBarrier in 7000 ms\n"
    text = failed.format(1) + failed.format(3) + failed.format("1, 3").replace("Rank 1, 3", "Ranks 1, 3")
    reached = "RuntimeError: Rank 2 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0."
    found = verdict(tmp_path, train=text + traceback(2, reached, ("/job/a.py", 7, "sync")))
    assert (found.culprits, found.confidence) == ((1, 3), Confidence.LIKELY)


def test_lagging_ranks_of_an_old_desync_report(tmp_path: Path) -> None:
    report = "\t - To our best knowledge, ranks [2, 3] are the lagging ranks that caused this timeout. They never joined any collectives\n"
    text = "".join(T.overdue(r, 1) for r in (0, 1, 4, 5))
    assert verdict(
        tmp_path, train=text + "[rank0]:[E309 10:00:00.0 ProcessGroupNCCL.cpp:1] Rank 0\n" + report
    ).culprits == (2, 3)


def test_an_exception_that_was_logged_while_training_went_on_is_no_crash(tmp_path: Path) -> None:
    text = traceback(None, "requests.exceptions.ConnectTimeout: grafana", ("/job/metrics.py", 12, "push"))
    text += "".join(f"step {i} loss 1.0\n" for i in range(100))
    found = verdict(tmp_path, train="step 0\n" + text + "training done\n")
    assert (found.outcome, found.culprits) == (Outcome.BLIND, ())


def test_where_only_connections_were_closed_the_rank_that_ended_is_named(tmp_path: Path) -> None:
    """No time-out was told: a peer's end came first."""
    closed = "".join(
        traceback(
            r,
            CLOSED,
            ("/job/train.py", 18, "train"),
            C10D,
            (f"{LIB}/torch/distributed/distributed_c10d.py", 3252, "all_reduce"),
        )
        for r in (1, 3)
    )
    ends = elastic((0, 3, "10:00:00"), (1, 1, "10:00:00"), (3, 1, "10:00:00"), (2, -15, "10:00:01"), asked=(2,), root=1)
    found = verdict(tmp_path / "a", console=closed + ends)
    assert (found.outcome, found.culprits, _code(found)) == (Outcome.CRASHED, (0,), "HD401")
    for signal in (6, 9, 11):
        killed = verdict(
            tmp_path / str(signal), console=closed + ends.replace("exitcode  : 3", f"exitcode  : -{signal}")
        )
        assert (killed.culprits, _code(killed)) == ((0,), "HD402")


def test_a_rank_that_was_cut_off_after_a_time_out_is_not_missing(tmp_path: Path) -> None:
    """It was in a call of its own when the others' ends closed its connection."""
    backward = (
        (f"{LIB}/torch/_tensor.py", 623, "backward"),
        (f"{LIB}/torch/autograd/graph.py", 979, "_engine_run_backward"),
    )
    text = (
        traceback(0, CLOSED, ("/job/train.py", 21, "fit"), *backward)
        + _timed_out(1, "barrier", 25)
        + _timed_out(2, "barrier", 25)
    )
    found = verdict(tmp_path, console=text)
    assert found.confidence != Confidence.CERTAIN
    assert _code(found) != "HD113"
    assert "bucket" not in found.verdict


def test_stacks_of_ctrl_c(tmp_path: Path) -> None:
    frames = (("/job/ppo.py", 20, "<module>"), ("/job/ppo.py", 16, "main"), C10D)
    waiting = (C10D, (f"{LIB}/torch/distributed/distributed_c10d.py", 3252, "all_reduce"))
    text = traceback(
        1,
        "KeyboardInterrupt",
        ("/job/ppo.py", 20, "<module>"),
        ("/job/ppo.py", 15, "main"),
        ("/job/ppo.py", 8, "rollout"),
    )
    for rank in (0, 2):
        text += (
            traceback(rank, CLOSED, *waiting)
            + f"[rank{rank}]: During handling of the above exception, another exception occurred:\n"
        )
        text += traceback(rank, "KeyboardInterrupt", *frames)
    found = verdict(tmp_path, console=text)
    assert found.outcome == Outcome.HANG
    assert found.culprits == (1,)
    assert "ppo.py:8" in found.verdict


def test_a_native_crash_with_faulthandler_s_stack(tmp_path: Path) -> None:
    fatal = (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007fafa2a65b80 (most recent call first):\n"
        '  File "/job/main.py", line 20 in tokenise\n  File "/job/main.py", line 40 in <module>\n\nExtension modules: numpy\n'
    )
    fatal = "".join(f"[default3]:{line}\n" for line in fatal.splitlines())
    closed = traceback(
        0,
        CLOSED,
        ("/job/train.py", 18, "train"),
        C10D,
        (f"{LIB}/torch/distributed/distributed_c10d.py", 3252, "all_reduce"),
    )
    ends = elastic((3, -11, "10:00:00"), (0, -15, "10:00:01"), (1, -15, "10:00:01"), asked=(0, 1))
    found = verdict(tmp_path, console=fatal + closed + ends)
    assert (found.outcome, found.culprits) == (Outcome.CRASHED, (3,))
    assert "main.py:20" in found.verdict


def test_a_watchdog_that_was_stuck_before_any_time_out(tmp_path: Path) -> None:
    stuck = f"{T.front(2, '09:50:00.000')}{T.group(2, '0', 'default_pg')}ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress\n"
    waiting = "".join(T.overdue(r, 40) for r in (0, 1, 3))
    found = verdict(tmp_path / "a", train=stuck + waiting)
    assert (found.culprits, found.confidence) == ((2,), Confidence.LIKELY)
    assert "stuck" in found.verdict
    after = stuck.replace("09:50:00", "10:30:00")
    assert "stuck" not in verdict(tmp_path / "b", train=waiting + after).verdict


def test_the_sizes_that_gloo_refused(tmp_path: Path) -> None:
    refused = "[rank2]: terminate called after throwing an instance of 'gloo::EnforceNotMet'\n[rank2]:   what():  [enforce fail at gloo/transport/tcp/pair.cc:454] op.preamble.length <= op.nbytes. 256 vs 192\n"
    found = verdict(tmp_path, train=refused + elastic((2, -6, "10:00:00"), (0, -15, "10:00:01"), asked=(0,)))
    assert (found.outcome, found.culprits, _code(found)) == (Outcome.CRASHED, (), "HD104")
    assert "256" in found.verdict


def test_a_root_that_has_left_its_call_has_not_skipped_it(tmp_path: Path) -> None:
    """By stacks alone: rank 2 may be the root of the broadcast that the others wait in."""
    text = "".join(_timed_out(r, "broadcast", 7) for r in (0, 1, 3)) + _timed_out(2, "all_reduce", 19)
    found = verdict(tmp_path, console=text)
    assert (found.culprits, found.confidence) == ((), Confidence.POSSIBLE)
    assert "skip" not in found.verdict


def test_one_digit_labels_of_srun_are_no_wrapped_lines(tmp_path: Path) -> None:
    torch = Torch("2.0")
    lines = "".join(
        f"{r}: {torch.overdue(r, 22094, 'ALLREDUCE' if r != 3 else 'BROADCAST').splitlines()[0]}\n"
        for r in (4, 1, 0, 2, 5, 6, 7, 3)
    )
    found = verdict(tmp_path, srun=lines)
    assert found.culprits == (3,)


def test_every_rank_of_the_job_is_in_the_default_group(tmp_path: Path) -> None:
    """Also where no line says how many there are: a rank's own failure explains why it is missing there."""
    failed = traceback(3, "ValueError: ragged", ("/job/data.py", 74, "collate"))
    text = "".join(f"[pod/fit-1/pytorch] [default3]:{line}\n" for line in failed.splitlines())
    found = verdict(tmp_path, kubectl=text + "".join(T.overdue(r, 40) for r in (0, 1, 2)))
    assert (found.culprits, _code(found)) == ((3,), "HD401")
