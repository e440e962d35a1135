"""What careless readers conclude from logs, and what is wrong: one test for each trap."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_logs import Torch, elastic, read, traceback, verdict

from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.kinds import Confidence, Outcome

T = Torch()


def _code(found: Diagnosis) -> str | None:
    return found.cause.code if found.cause is not None else None


def test_a_lower_count_is_not_called_a_call_never_made(tmp_path: Path) -> None:
    """U1: torch counts a call when NCCL's function has returned."""
    text = T.overdue(0, 40) + T.overdue(2, 40) + T.lives(1, caller=0, enqueued=39)
    found = verdict(tmp_path, train=text)
    assert found.culprits == (1,)
    said = f"{found.verdict} {found.why} {found.fix}".lower()
    assert "never" not in said
    assert "inside" in said
    assert _code(found) not in ("HD101", "HD102")


def test_who_times_out_may_be_the_odd_one(tmp_path: Path) -> None:
    """U2."""
    found = verdict(tmp_path, train="".join(T.overdue(r) for r in (0, 1, 2)) + T.overdue(3, 7, "BROADCAST"))
    assert found.culprits == (3,)


@pytest.mark.parametrize("first", range(4))
def test_the_order_of_time_outs_blames_nobody(tmp_path: Path, first: int) -> None:
    """U3."""
    order = [first, *(r for r in range(4) if r != first)]
    times = {rank: f"10:00:0{i}.000" for i, rank in enumerate(order)}
    text = "".join(T.overdue(r, 7, "_ALLGATHER_BASE", (8, 32), at=times[r]) for r in order)
    found = verdict(tmp_path, train=text)
    assert (found.culprits, found.alternatives, _code(found)) == ((), (), "HD602")


def test_unlike_numbers_of_calls_with_a_root_are_no_divergence(tmp_path: Path) -> None:
    """U4: a member of a broadcast may be done before the others."""
    text = "".join(T.overdue(r, 881, "BROADCAST", enqueued=931, group="23") for r in (0, 2)) + T.overdue(
        1, 880, "BROADCAST", enqueued=931, group="23"
    )
    found = verdict(tmp_path, train=text)
    assert found.culprits == ()
    assert _code(found) != "HD106"


def test_numbers_are_not_compared_where_messages_are_counted(tmp_path: Path) -> None:
    """U4, of a group with messages."""
    text = (
        T.overdue(0, 12, "SEND", group="4")
        + T.overdue(1, 9, "ALLREDUCE", group="4")
        + T.overdue(2, 9, "RECV", group="4")
    )
    found = verdict(tmp_path, train=text)
    assert found.culprits == ()
    assert _code(found) not in ("HD106", "HD104", "HD113")


def test_the_numbers_of_a_dump_signal_are_the_default_group_s(tmp_path: Path) -> None:
    """U5: rank 2's 6 is no number of the mesh group's call 58."""
    text = "".join(T.overdue(r, 58, group="9", about="dp") for r in (0, 1)) + T.lives(2, caller=0, enqueued=6)
    found = verdict(tmp_path, train=text)
    assert found.confidence != Confidence.CERTAIN
    assert "#6" not in found.verdict


def test_what_follows_the_first_time_out_is_aftermath(tmp_path: Path) -> None:
    """U6 and U8: errors of an aborted communicator, of unfilled buffers, of peers that are gone."""
    after = "".join(
        traceback(rank, error, ("/job/train.py", 4, "main"))
        for rank, error in (
            (
                1,
                "RuntimeError: DDP expects same model across all ranks, but Rank 1 has 16 params, while rank 0 has inconsistent 0 params.",
            ),
            (2, "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 2."),
            (3, "torch.OutOfMemoryError: Tried to allocate more than 1EB memory."),
            (0, "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:5"),
        )
    )
    after += "[rank3]:[F309 10:09:00.000000000 ProcessGroupNCCL.cpp:1500] [PG ID 0 PG GUID 0 Rank 3] Heartbeat monitor timed out!\n"
    text = "".join(T.overdue(r, 7, "_ALLGATHER_BASE", (8, 32)) for r in range(4)) + after
    found = verdict(tmp_path, train=text)
    assert (found.culprits, _code(found)) == ((), "HD602")


@pytest.mark.parametrize("root", [0, 1, 3])
def test_torchelastic_s_root_cause_is_a_victim_after_a_time_out(tmp_path: Path, root: int) -> None:
    """U7."""
    text = "".join(T.overdue(r, 40) for r in (0, 1, 3)) + T.lives(2, caller=0, enqueued=39)
    ends = [(r, -6, "10:01:00") for r in (0, 1, 3)] + [(2, -15, "10:01:01")]
    found = verdict(tmp_path, train=text + elastic(*ends, asked=(2,), root=root))
    assert found.culprits == (2,)


def test_an_empty_fingerprint_is_no_call(tmp_path: Path) -> None:
    """U9: and where only the sequence numbers differ, the fault is DETAIL's own."""
    both = (
        "RuntimeError: Detected mismatch between collectives on ranks. Rank {} is running collective: CollectiveFingerPrint("
        "SequenceNumber={}, OpType=ALLGATHER, TensorShape=[1], TensorDtypes=Long, TensorDeviceTypes=TensorOptions(dtype=float)),"
        " but Rank {} is running collective: CollectiveFingerPrint({}).Collectives differ in the following aspects: "
    )
    empty = "".join(
        traceback(r, both.format(r, 233, 2, "SequenceNumber=0OpType=REDUCE"), ("/job/a.py", 4, "main")) for r in (0, 1)
    )
    own = traceback(2, "OSError: [Errno 5] Input/output error", ("/job/data.py", 31, "fetch"))
    found = verdict(tmp_path / "a", train=own + empty)
    assert (found.culprits, _code(found)) == ((2,), "HD401")
    assert "REDUCE" not in found.verdict
    other = "SequenceNumber=232, OpType=ALLGATHER, TensorShape=[1], TensorDtypes=Long, TensorDeviceTypes=x"
    numbers = traceback(0, both.format(0, 233, 1, other), ("/job/a.py", 4, "main"))
    assert verdict(tmp_path / "b", train=numbers).culprits == ()


def test_ranks_that_ras_lists_are_the_fewer(tmp_path: Path) -> None:
    """U10: here those that are ahead."""
    from test_rules import _RAS

    ahead = _RAS.replace("3 ranks have launched up to operation 208", "3 ranks have launched up to operation 206")
    found = verdict(tmp_path, ras=ahead)
    assert 2 not in found.culprits
    assert found.confidence != Confidence.CERTAIN


def test_torchfrtrace_s_culprits_differ_from_the_first_rank_it_looked_at(tmp_path: Path) -> None:
    """U12: rank 0 is the odd one of four."""
    culprits = ", ".join(
        f"Culprit rank {r}; Error type: SIZE_OR_SYNTAX_MISMATCH, Expected input sizes: '[[9]]' does not match found input sizes: "
        f"'[[8]]'" for r in (1, 2, 3)
    )  # fmt: skip
    text = (
        f"Collective 211 at entry 210 errors\ngroup info: 0:default_pg\ncollective: nccl:all_reduce\ninput sizes: [[9]]\n"
        f"output sizes: [[9]]\nworld size: 4\nexpected ranks: {{0, 1, 2, 3}}\ncollective state: scheduled\nerror msg: {culprits}\n"
    )
    found = verdict(tmp_path, trace=text)
    assert (found.culprits, _code(found)) == ((0,), "HD104")


def test_a_place_in_a_group_is_no_global_rank(tmp_path: Path) -> None:
    """U13: [Rank 0] of group 6 is rank 2."""
    members = "".join(T.member(*each) for each in ((0, 0, 2, "5"), (1, 1, 2, "5"), (2, 0, 2, "6"), (3, 1, 2, "6")))
    text = (
        members
        + T.overdue(2, 9, member=0, group="6")
        + T.lives(3, caller=2)
        + T.lives(0, caller=2)
        + T.lives(1, caller=2)
    )
    found = verdict(tmp_path, train=text)
    assert 0 not in found.culprits
    assert found.culprits == (3,)


def test_a_local_rank_of_the_launcher_is_no_global_rank(tmp_path: Path) -> None:
    """U13: torchrun's folder 0 on the second host is rank 2."""
    job = read(
        tmp_path,
        **{
            "run__attempt_0__0__stderr.log": T.overdue(2, 9),
            "run__attempt_0__1__stderr.log": T.overdue(3, 9),
            "run__attempt_0__1__stdout.log": "step 4 of rank three\n",
        },
    )
    assert job.logged is not None
    assert {each.rank for each in job.logged.overdue} == {2, 3}
    assert {each.rank for each in job.logged.streams} == {3}


def test_silence_in_a_folded_log_is_no_absence(tmp_path: Path) -> None:
    """U14: Ray leaves repeated lines out."""
    folded = "(Worker pid=1) warning [repeated 5x across cluster] (Ray deduplicates logs by default.)\n"
    members = "".join(T.member(r, r, 4, "0") for r in range(4))
    found = verdict(tmp_path, train=members + folded + "".join(T.overdue(r, 7) for r in (0, 1, 3)))
    assert (found.culprits, found.alternatives) == ((), ())


def test_of_ten_pasted_lines_nobody_is_missing(tmp_path: Path) -> None:
    """U14: the number of ranks is not known."""
    found = verdict(tmp_path, paste=T.overdue(5, 7).splitlines()[0] + "\n")
    assert (found.outcome, found.culprits, found.alternatives) == (Outcome.HANG, (), ())
    assert "rank 5 waits" in found.verdict.lower()


def test_the_last_attempt_counts(tmp_path: Path) -> None:
    """U15: the first one's missing rank is nobody's fault now."""
    first = "".join(T.overdue(r, 90, at="08:00:00.000") for r in (0, 1, 3)) + T.lives(
        2, caller=0, enqueued=89, at="08:00:01.000"
    )
    again = "I0309 08:01:00.000000 8 torch/distributed/elastic/agent/server/api.py:906] [default] Worker group FAILED. 2/3 attempts left; will restart worker group\n"
    second = "".join(T.overdue(r, 7) for r in (0, 2, 3)) + T.lives(1, caller=0, enqueued=6)
    found = verdict(tmp_path / "a", train=first + again + second)
    assert found.culprits == (1,)
    assert "last of 2 attempts" in found.verdict
    twice = verdict(tmp_path / "b", train=first + second)
    assert twice.culprits == (1,)


def test_a_size_that_was_never_set_is_unknown(tmp_path: Path) -> None:
    """U16."""
    unset = (1 << 64) - 1
    text = "".join(T.overdue(r, 7, "COALESCED", (unset, unset)) for r in (0, 1)) + T.overdue(
        2, 7, "COALESCED", (64, 64)
    )
    assert _code(verdict(tmp_path, train=text)) != "HD104"


@pytest.mark.parametrize("op", ["ALLREDUCE", "_ALLGATHER_BASE"])
def test_a_name_that_stands_for_several_groups_is_compared_with_nothing(tmp_path: Path, op: str) -> None:
    """Two ranks at one place of 'group 1': each process numbers its groups for itself."""
    old = Torch("2.3")
    text = "".join(old.overdue(r, 7, group="1", about="", member=r % 2) for r in (0, 1))
    text += "".join(old.overdue(r, 9, op, (4, 8), group="1", about="", member=r % 2) for r in (2, 3))
    found = verdict(tmp_path, train=text)
    assert (found.culprits, _code(found)) == ((), None)
    assert {each.rank: each.sequence for each in found.ranks} == {0: 7, 1: 7, 2: 9, 3: 9}


def test_two_calls_of_one_number_of_a_rank_are_of_two_groups(tmp_path: Path) -> None:
    """Before torch 2.3 no line names a group."""
    old = Torch("2.1")
    text = "".join(old.overdue(r, 7) + old.overdue(r, 7, "_ALLGATHER_BASE", (4, 8)) for r in (0, 1))
    found = verdict(tmp_path, train=text)
    assert (found.culprits, _code(found)) == ((), None)


def test_a_rank_that_was_aborted_too_may_have_waited_in_a_part_that_is_missing(tmp_path: Path) -> None:
    files = {f"rank_{r}": f"WORLD_SIZE=4\n[rank{r}]: step 5\n{T.overdue(r)}" for r in range(3)}
    files["rank_3"] = "WORLD_SIZE=4\n" + "[rank3]: step 4\n" * 20 + "[rank3]:[E309 10:0"
    ends = elastic(*((r, -6, "10:00:05") for r in range(4)))
    found = verdict(tmp_path, **files, console=ends)
    assert (found.culprits, found.confidence) == ((3,), Confidence.POSSIBLE)


@pytest.mark.parametrize("code", [-15, -6])
def test_of_several_that_were_told_to_end_the_first_is_not_to_blame(tmp_path: Path, code: int) -> None:
    """U3: a scheduler's SIGTERM, or the aborts of a job that hung, a second apart."""
    ends = elastic(*((r, code, f"10:00:0{5 + r}") for r in range(4)))
    assert verdict(tmp_path, console=ends).culprits == ()


def test_two_jobs_in_one_folder_make_nothing_certain(tmp_path: Path) -> None:
    """Rank 3 of the second job is no rank of the first."""
    first = "WORLD_SIZE=4\n" + "".join(T.overdue(r, 7) for r in range(3))
    second = "".join(T.overdue(r, 3, at="11:00:00.000") for r in range(3))
    second += T.lives(3, caller=0, enqueued=2, at="11:00:01.000")
    found = verdict(tmp_path, first=first, second=second)
    assert found.confidence is not Confidence.CERTAIN


def test_the_code_that_a_traceback_quotes_is_nobody_s_last_word(tmp_path: Path) -> None:
    text = "".join(T.overdue(r) for r in range(3)) + "[rank3]: step 88\n" + T.lives(3, caller=0)
    found = verdict(tmp_path, train=text + traceback(3, "ValueError: late", ("/job/t.py", 3, "f")))
    assert "step 88" in found.why
    assert "work()" not in found.why


def test_an_error_that_a_waiting_rank_has_survived_blames_no_other_with_it(tmp_path: Path) -> None:
    text = "WORLD_SIZE=4\n" + "".join(traceback(r, "ImportError: flash", ("/job/t.py", 3, "f")) for r in range(4))
    found = verdict(tmp_path, train=text + "".join(T.overdue(r) for r in range(3)))
    assert "ImportError" not in found.verdict
    assert found.confidence is Confidence.POSSIBLE


def test_a_rank_that_went_on_after_an_exception_did_not_fail_by_it(tmp_path: Path) -> None:
    text = "WORLD_SIZE=4\n" + traceback(1, "ImportError: flash", ("/job/t.py", 3, "f")) + "[rank1]: step 4\n" * 90
    found = verdict(tmp_path, train=text + elastic((2, -9, "10:00:05"), asked=(0, 1, 3)))
    assert (found.culprits, _code(found)) == ((2,), "HD402")


def test_tasks_that_were_all_killed_alike_are_not_to_blame(tmp_path: Path) -> None:
    text = "srun: error: n: tasks 0-7: Killed\nslurmstepd: error: *** STEP 3.0 ON n CANCELLED AT 2026-03-09T10 ***\n"
    assert verdict(tmp_path, train=text).culprits == ()
