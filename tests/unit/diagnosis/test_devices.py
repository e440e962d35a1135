"""Dumps of jobs whose devices execute the calls: issued is not arrived, and what the times say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from device_dumps import folder
from forked_workers import forked_workers

from hangdoc import api
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.process import ProcessExit
from hangdoc.report.terminal import render


def asked(where: Path, ranks: dict[int, str], **how: Any) -> Diagnosis:
    """What is said of that folder."""
    return api.diagnose(folder(where, ranks, **how))


def told(found: Diagnosis) -> str:
    """Everything a reader meets, on one line."""
    return " ".join(render(found, width=200).split())


def code(found: Diagnosis) -> str | None:
    return found.cause.code if found.cause else None


LOOP = "all_reduce all_reduce all_reduce"
NOT_OF_DUMPS = ("socket", "py-spy", "process table", "outside the job")


@pytest.fixture(scope="module", autouse=True)
def workers_are_forked() -> Iterator[None]:
    with forked_workers():
        yield


def test_the_one_rank_whose_kernel_was_not_timed_is_possible(tmp_path: Path) -> None:
    found = asked(tmp_path, {rank: f"{LOOP} all_reduce{'*' if rank == 2 else '+'} barrier*" for rank in range(4)})
    assert (found.outcome, found.culprits, code(found)) == ("hang", (2,), "HD602")
    assert found.confidence == "possible", "nothing of rank 2 was ever timed"


def test_a_kernel_that_has_not_begun_where_kernels_are_timed(tmp_path: Path) -> None:
    """Rank 2's recorder has seen a kernel begin in another group, so 'scheduled' means 'not begun' there."""
    ranks = dict.fromkeys(range(4), f"{LOOP} all_reduce+ barrier*")
    ranks[2] = f"{LOOP} all_reduce* tp:all_reduce+ barrier*"
    found = asked(tmp_path, ranks, groups={"tp": [2]})
    assert (found.outcome, found.culprits, code(found)) == ("hang", (2,), "HD602")
    assert found.confidence == "likely"
    assert "on the GPU it has not begun" in told(found)
    assert not [word for word in NOT_OF_DUMPS if word in told(found)]


def test_without_starts_a_stuck_kernel_and_a_late_gpu_are_both_possible(tmp_path: Path) -> None:
    found = asked(tmp_path, dict.fromkeys(range(3), f"{LOOP} all_reduce* barrier*"))
    assert (found.outcome, found.culprits, code(found), found.confidence) == ("hang", (), "HD602", "possible")
    assert found.alternatives == ((0,), (1,), (2,))
    assert "Either the GPU of one of them has not reached the call" in found.why
    assert "TORCH_NCCL_ENABLE_TIMING=1" in found.fix


def test_a_call_that_all_run_is_nobody_s_fault(tmp_path: Path) -> None:
    found = asked(tmp_path, dict.fromkeys(range(3), f"{LOOP} all_reduce+ barrier*"))
    assert (found.culprits, found.alternatives, code(found)) == ((), (), "HD602")


def test_a_rank_that_never_issued_the_call_is_late(tmp_path: Path) -> None:
    found = asked(tmp_path, {0: f"{LOOP} barrier+ all_reduce*", 1: f"{LOOP} barrier+ all_reduce*", 2: LOOP})
    assert (found.outcome, found.culprits, found.confidence) == ("hang", (2,), "likely")
    assert "Rank 2 has not issued barrier" in found.verdict
    assert not [word for word in NOT_OF_DUMPS if word in told(found)]


def test_who_issued_the_call_and_stands_before_it_is_followed_to_the_root(tmp_path: Path) -> None:
    """Ranks 0 and 1 wait in dp for 2 and 3, which have issued it too; these wait in tp for rank 5."""
    groups = {"dp": [0, 1, 2, 3], "tp": [2, 3, 4, 5]}
    ranks = dict.fromkeys((0, 1), f"{LOOP} dp:all_reduce*")
    ranks |= dict.fromkeys((2, 3), f"{LOOP} tp:all_reduce* dp:all_reduce*")
    ranks |= {4: f"{LOOP} tp:all_reduce*", 5: LOOP}
    found = asked(tmp_path, ranks, groups=groups)
    assert found.culprits == (5,)
    assert set(found.victims) == {0, 1, 2, 3, 4}


def test_the_first_to_time_out_is_not_the_reason(tmp_path: Path) -> None:
    ranks = {0: f"{LOOP} barrier*", 1: f"{LOOP} barrier*", 2: LOOP}
    found = asked(tmp_path, ranks, after=601.0)
    assert found.outcome == "hang"
    assert "PyTorch timed out after 600 s, first on rank 0." in found.verdict
    assert any("rank 0 timed out first" in e.text and "the reason is rank 2" in e.text for e in found.evidence)


def test_of_a_job_that_the_watchdog_ended_the_first_to_time_out_is_told_from_the_reason(tmp_path: Path) -> None:
    ranks = {0: f"{LOOP} barrier*", 1: f"{LOOP} barrier*", 2: f"{LOOP} all_gather*"}
    job = api.load(folder(tmp_path, ranks, after=601.0))
    killed = ProcessExit(at=1_760_000_602.0, signal=6)
    ended = replace(
        job, mode="watch", ended=True, exit_status=1, ranks=tuple(replace(r, exit=killed) for r in job.ranks)
    )
    found = api.diagnose(ended)
    assert (found.outcome, found.culprits) == ("crashed", (2,))
    assert "rank 0 timed out first, after 10 min in barrier; the reason is rank 2" in told(found)


def test_dumps_of_a_running_job_prove_nothing(tmp_path: Path) -> None:
    """Rank 1's dump is a second older: it had not issued what rank 0 has completed by now."""
    ranks = {0: f"{LOOP} all_reduce all_reduce*", 1: "all_reduce all_reduce all_reduce*"}
    found = asked(tmp_path, ranks, after={0: 0.5, 1: 0.3})
    assert (found.outcome, found.culprits, code(found)) == ("blind", (), None)
    assert "may be of different moments of a running job" in found.verdict
    command = [sys.executable, "-m", "hangdoc", "diagnose", str(tmp_path)]
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 3


def test_what_has_waited_for_longer_than_the_dumps_lie_apart_hangs(tmp_path: Path) -> None:
    ranks = {0: f"{LOOP} barrier*", 1: LOOP}
    assert asked(tmp_path, ranks, after={0: 40.0, 1: 43.0}).outcome == "hang"
    assert asked(tmp_path, ranks, after={0: 1.0, 1: 1.5}).outcome == "blind"


def test_a_clash_is_a_hang_at_once(tmp_path: Path) -> None:
    found = asked(tmp_path, dict.fromkeys(range(3), f"{LOOP} all_reduce*") | {3: f"{LOOP} all_reduce/8*"}, after=0.5)
    assert (found.outcome, found.culprits, code(found), found.confidence) == ("hang", (3,), "HD104", "certain")


@pytest.mark.parametrize("after", [86_400.0, -86_400.0, 0.9], ids=["copied", "older than its calls", "set to one time"])
def test_times_that_are_not_those_of_the_dumps_are_no_reason_to_be_blind(tmp_path: Path, after: float) -> None:
    found = asked(tmp_path, {0: f"{LOOP} barrier*", 1: f"{LOOP} barrier*", 2: LOOP}, after=after)
    assert (found.outcome, found.culprits, found.confidence) == ("hang", (2,), "likely")
    assert found.verdict.startswith("Rank 2 has not issued barrier")
    assert "for how long the calls were under way is not known" in found.sure


def test_one_line_says_what_better_dumps_would_add(tmp_path: Path) -> None:
    ranks = {0: f"{LOOP} barrier*", 1: f"{LOOP} barrier*", 2: LOOP}
    found = asked(tmp_path, ranks, after=86_400.0, frames=False, only_active=True)
    (note,) = (note for note in found.unavailable if note.what == "dumps")
    for setting in ("cp -p", "TORCH_INCLUDE_ONLY_ACTIVE", "TORCH_INCLUDE_STACK_TRACE", "TORCH_NCCL_ENABLE_TIMING"):
        assert setting in note.remedy
    assert not [note for note in asked(tmp_path, ranks, after=601.0).unavailable if note.what == "dumps"]


def test_clocks_that_are_apart_are_no_reason_to_be_blind(tmp_path: Path) -> None:
    """Rank 1's clock is 200 s ahead: its file's time is no proof that the job moved after rank 0 wrote its dump."""
    ranks = {0: f"{LOOP} barrier*", 1: LOOP}
    found = asked(tmp_path, ranks, after={0: 60.0, 1: 260.0}, ahead={1: 200.0})
    assert (found.outcome, found.culprits, found.confidence) == ("hang", (1,), "likely")


def test_without_times_most_dumps_have_to_be_there(tmp_path: Path) -> None:
    ranks = dict.fromkeys(range(3), f"{LOOP} barrier*")
    found = asked(tmp_path, ranks, size=4, after=86_400.0)
    assert (found.outcome, found.alternatives) == ("hang", ((3,),))
    assert asked(tmp_path, ranks, size=8, after=86_400.0).outcome == "blind"


def test_complete_dumps_are_of_a_healthy_job(tmp_path: Path) -> None:
    found = asked(tmp_path, {rank: f"{LOOP} [send>{1 - rank},recv<{1 - rank}]" for rank in range(2)})
    assert found.outcome == "healthy", "the parts of a batch stay scheduled for ever"


def test_a_complete_dump_says_nothing_of_those_that_are_missing(tmp_path: Path) -> None:
    found = asked(tmp_path, {0: LOOP}, size=2)
    assert (found.outcome, found.culprits) == ("blind", ())
    assert "rank 1's dump is missing" in found.verdict


@pytest.mark.parametrize("only_active", [False, True])
def test_batches_that_took_numbers_of_the_collectives_shift_nothing(tmp_path: Path, only_active: bool) -> None:
    """Only ranks 0 and 1 pass messages: until torch 2.5 their collectives have other numbers than rank 2's."""
    batch = {0: "[send>1,recv<1]", 1: "[recv<0,send>0]", 2: ""}
    ranks = {rank: f"all_reduce {batch[rank]} all_reduce {batch[rank]} barrier" for rank in range(3)}
    assert asked(tmp_path, ranks, old=True, only_active=only_active).outcome != "hang"
    ranks = {rank: f"{words}{'*' if rank else ''}" for rank, words in ranks.items()}
    ranks[0] = ranks[0].removesuffix("barrier")
    found = asked(tmp_path, ranks, old=True)
    assert (found.outcome, found.culprits) == ("hang", (0,))


def test_a_batch_is_no_fault_of_order(tmp_path: Path) -> None:
    """One rank sends first in its batch, the other receives first; both are in it, and rank 2 is late for the rest."""
    ranks = {0: f"{LOOP} [send>1,recv<1] barrier*", 1: f"{LOOP} [recv<0,send>0] barrier*", 2: LOOP}
    assert asked(tmp_path, ranks).culprits == (2,)


def test_a_message_that_a_loop_always_had_and_now_left_out(tmp_path: Path) -> None:
    rounds = {0: "send>1 all_reduce", 1: "recv<0 send>2 all_reduce", 2: "recv<1 all_reduce"}
    ranks = {rank: " ".join([words] * 5) for rank, words in rounds.items()}
    ranks[0] += " send>1 all_reduce*"
    ranks[1] += " recv<0 all_reduce*"
    ranks[2] += " recv<1*"
    found = asked(tmp_path, ranks)
    assert (found.outcome, found.culprits, code(found)) == ("hang", (1,), "HD202")
    assert "Rank 1 left out the send to rank 2 at train.py:60 train()" in found.verdict


def test_two_groups_in_opposite_order_though_all_issued_everything(tmp_path: Path) -> None:
    groups = {"a": [0, 1, 2], "b": [0, 1, 2]}
    ranks = dict.fromkeys((0, 1), "a:all_reduce b:barrier a:all_reduce* b:barrier* all_gather*")
    ranks[2] = "a:all_reduce b:barrier b:barrier* a:all_reduce* all_gather*"
    found = asked(tmp_path, ranks, groups=groups)
    assert (found.outcome, found.culprits, code(found)) == ("hang", (2,), "HD107")


def test_a_call_left_out_is_not_taken_for_an_order(tmp_path: Path) -> None:
    groups = {"a": [0, 1, 2], "b": [0, 1, 2]}
    rounds = "a:all_reduce b:barrier "
    ranks = dict.fromkeys((0, 1), f"{rounds * 3} a:all_reduce* b:barrier* a:all_reduce* b:barrier*")
    ranks[2] = f"{rounds * 3} b:barrier* a:all_reduce* b:barrier*"
    found = asked(tmp_path, ranks, groups=groups, frames=False)
    assert (found.culprits, code(found)) == ((2,), "HD101")


def test_two_calls_that_changed_places(tmp_path: Path) -> None:
    ranks = dict.fromkeys(range(3), f"{LOOP} all_gather* broadcast* all_reduce*")
    ranks[1] = f"{LOOP} broadcast* all_gather* all_reduce*"
    found = asked(tmp_path, ranks)
    assert (found.culprits, code(found)) == ((1,), "HD106")
    threads = dict.fromkeys(range(3), f"{LOOP} all_gather* uploader!broadcast* all_reduce*")
    threads[1] = f"{LOOP} uploader!broadcast* all_gather* all_reduce*"
    found = asked(tmp_path, threads)
    assert (found.culprits, code(found)) == ((1,), "HD108")
    assert found.confidence != "certain"


@pytest.mark.parametrize("frames", [True, False])
def test_a_call_that_is_skipped_is_named_with_or_without_its_line(tmp_path: Path, frames: bool) -> None:
    ranks = dict.fromkeys(range(4), f"{LOOP} barrier* all_gather* all_reduce*")
    ranks[3] = f"{LOOP} all_gather* all_reduce*"
    found = asked(tmp_path, ranks, frames=frames)
    assert (found.culprits, code(found)) == ((3,), "HD101")
    assert "barrier" in found.verdict
    assert " at ;" not in told(found)
    assert " at ," not in told(found)
    assert ("train.py:30" in found.verdict) == frames


def test_a_clash_among_the_seen_outranks_a_missing_dump(tmp_path: Path) -> None:
    ranks = dict.fromkeys((0, 2, 3), f"{LOOP} all_reduce*") | {1: f"{LOOP} all_reduce/8*"}
    found = asked(tmp_path, ranks, size=6)
    assert (found.outcome, found.culprits, code(found)) == ("hang", (1,), "HD104")
    assert found.unseen == (4, 5)
    assert found.confidence != "certain"


def test_a_rank_without_a_dump_is_unseen_and_not_guilty(tmp_path: Path) -> None:
    found = asked(tmp_path, {0: f"{LOOP} barrier*", 1: f"{LOOP} barrier*"}, size=3, after=601.0)
    assert (found.outcome, found.culprits, found.unseen) == ("hang", (), (2,))
    assert "Rank 2's dump is missing" in found.verdict
    assert "PyTorch timed out after 600 s" in found.verdict


def test_independent_faults_are_all_named(tmp_path: Path) -> None:
    groups = {"tp0": [0, 1, 2], "tp1": [3, 4, 5]}
    ranks = dict.fromkeys((0, 1), f"{LOOP} tp0:all_reduce*") | {2: f"{LOOP} tp0:all_reduce/8*"}
    ranks |= dict.fromkeys((3, 4), f"{LOOP} tp1:all_reduce*") | {5: LOOP}
    found = asked(tmp_path, ranks, groups=groups)
    assert found.culprits == (2, 5)
    assert "Independently of that, rank 5 has not issued all_reduce #1 of tp1" in found.verdict
    assert found.confidence != "certain"


def test_independent_faults_are_all_named_of_live_jobs_too(tmp_path: Path) -> None:
    """The same dumps as the ranks of a job that is watched have left them."""
    groups = {"tp0": [0, 1, 2], "tp1": [3, 4, 5]}
    ranks = dict.fromkeys((0, 1), f"{LOOP} tp0:all_reduce*") | {2: f"{LOOP} tp0:all_reduce/8*"}
    ranks |= dict.fromkeys((3, 4), f"{LOOP} tp1:all_reduce*") | {5: LOOP}
    job = replace(api.load(folder(tmp_path, ranks, groups=groups)), mode="attach")
    found = api.diagnose(job)
    assert (found.outcome, found.culprits) == ("hang", (2, 5))
    assert "Independently of that, rank 5 has not issued all_reduce #1 of tp1" in found.verdict
    assert found.confidence != "certain"


def test_arguments_that_were_never_given_before_decide_between_two(tmp_path: Path) -> None:
    found = asked(tmp_path, {0: f"{LOOP} all_reduce/8*", 1: f"{LOOP} all_reduce*"})
    assert (found.culprits, found.alternatives, found.confidence) == ((0,), (), "likely")


def test_other_sizes_that_were_given_before_are_another_call(tmp_path: Path) -> None:
    """Without stacks: rank 2 is one call ahead, and both sizes have been seen."""
    ranks = dict.fromkeys((0, 1, 3, 4), "all_reduce/8 all_reduce/4 all_reduce/8 all_reduce/4*")
    ranks[2] = "all_reduce/8 all_reduce/4 all_reduce/8 all_reduce/8*"
    found = asked(tmp_path, ranks, frames=False)
    assert (found.culprits, code(found)) == ((2,), "HD101")
    assert found.confidence != "certain"


def test_one_call_too_many_is_no_exchange(tmp_path: Path) -> None:
    """Rank 1 goes on with the very call that the others wait in: nobody else ever makes its all_gather."""
    ranks = dict.fromkeys(range(4), f"{LOOP} barrier*") | {1: f"{LOOP} all_gather* barrier*"}
    found = asked(tmp_path, ranks, after=601.0)
    assert (found.outcome, found.culprits, code(found), found.confidence) == ("hang", (1,), "HD101", "certain")
    assert "Removing the `all_gather`" in told(found)


def test_one_call_too_many_wins_over_several_missing(tmp_path: Path) -> None:
    rest = "broadcast* all_reduce* all_reduce/8* all_reduce/2*"
    ranks = dict.fromkeys(range(4), f"{LOOP} {rest}") | {0: f"{LOOP} all_reduce/1@77* {rest}"}
    found = asked(tmp_path, ranks, after=601.0)
    assert (found.culprits, code(found)) == ((0,), "HD101")
    assert "Removing the `all_reduce` at train.py:77" in told(found)


def test_an_extra_call_of_another_group_is_no_order_across_groups(tmp_path: Path) -> None:
    step = "tp:all_reduce all_reduce"
    ranks = dict.fromkeys(range(4), f"{step} {step} all_reduce*")
    ranks[0] = f"{step} {step} tp:all_reduce@77* all_reduce*"
    found = asked(tmp_path, ranks, groups={"tp": [0, 1]}, after=601.0)
    assert (found.culprits, code(found)) == ((0,), "HD101")


def test_a_call_that_the_others_may_still_make_is_not_certain(tmp_path: Path) -> None:
    """Their CPUs wait in the barrier, and they have made such an all_gather before: it may come next."""
    ranks = dict.fromkeys(range(4), f"all_gather {LOOP} barrier*") | {1: f"all_gather {LOOP} all_gather* barrier*"}
    found = asked(tmp_path, ranks, after=601.0)
    assert (found.culprits, code(found), found.confidence) == ((1,), "HD101", "likely")


def test_without_the_completed_calls_nothing_is_certain(tmp_path: Path) -> None:
    ranks = dict.fromkeys(range(4), f"{LOOP} barrier*") | {1: f"{LOOP} all_gather* barrier*"}
    found = asked(tmp_path, ranks, after=601.0, only_active=True)
    assert (found.culprits, found.confidence) == ((1,), "likely")


def test_a_rank_at_work_has_a_share_of_the_time_out(tmp_path: Path) -> None:
    """Rank 0 saves a checkpoint while the others are in the barrier behind it."""
    ranks = {0: LOOP, 1: f"{LOOP} barrier*", 2: f"{LOOP} barrier*"}
    written = {0: 20.0, 1: 20.1, 2: 20.1}
    assert asked(tmp_path, ranks, after=written).outcome == "blind"
    assert asked(tmp_path, ranks, after=40.0).outcome == "hang"
    assert asked(tmp_path, ranks, after=written, timeout=60.0).outcome == "hang"
    everyone = {0: f"{LOOP} all_reduce*", 1: f"{LOOP} barrier*", 2: f"{LOOP} barrier*"}
    assert asked(tmp_path, everyone, after=20.0).outcome == "hang", "nobody works"


def test_the_one_without_a_dump_is_named_as_what_may_be_to_blame(tmp_path: Path) -> None:
    found = asked(tmp_path, dict.fromkeys((0, 1, 3), f"{LOOP} barrier*"), size=4, after=601.0)
    assert (found.outcome, found.culprits, found.alternatives) == ("hang", (), ((2,),))
    assert "Rank 2's dump is missing" in found.verdict


def test_a_circle_of_sends_that_wait_needs_no_times(tmp_path: Path) -> None:
    """Each rank's recv comes behind its send: no later call can end that. An isend would not hold up what follows."""
    ranks = {rank: f"all_reduce send>{(rank + 1) % 3}*" for rank in range(3)}
    found = asked(tmp_path, ranks, after=86_400.0, waiting=True)
    assert (found.outcome, code(found)) == ("hang", "HD201")
    early = {0: 1.0, 1: 1.1, 2: 1.1}
    assert asked(tmp_path, ranks, after=early, waiting=True).outcome == "hang"
    assert asked(tmp_path, ranks, after=early).outcome == "blind"
    older = ranks | {1: "all_reduce recv<0 send>2*"}
    assert asked(tmp_path, older, after=early, waiting=True).outcome == "blind", "rank 0's dump is an older one"


def test_a_message_owed_by_a_rank_in_a_call_of_its_own(tmp_path: Path) -> None:
    """Rank 2 is in a barrier at a line that nobody else ever runs; the message that rank 1 waits for comes behind."""
    step = {0: "send>1", 1: "recv<0 send>2", 2: "recv<1", 3: ""}
    ranks = {rank: f"{step[rank]} all_reduce {step[rank]} all_reduce" for rank in step}
    ranks |= {0: f"{ranks[0]} send>1 all_reduce*", 1: f"{ranks[1]} recv<0 send>2*"}
    ranks |= {2: f"{ranks[2]} barrier@99*", 3: f"{ranks[3]} all_reduce*"}
    found = asked(tmp_path, ranks, after=601.0)
    assert (found.outcome, found.culprits, code(found)) == ("hang", (2,), "HD101")
    assert "train.py:99" in found.verdict


def test_two_ranks_of_different_groups_that_changed_the_order_of_a_mesh(tmp_path: Path) -> None:
    """Ranks 1 and 6 reduce over their shard first. No other rank has both of either one's groups."""
    half = {"rep": [[0, 4], [1, 5], [2, 6], [3, 7]], "shard": [[0, 1, 2, 3], [4, 5, 6, 7]]}
    groups = {f"{name}{at}": who for name, all_ in half.items() for at, who in enumerate(all_)}
    ranks = {}
    for rank in range(8):
        rep, shard = f"rep{rank % 4}:all_reduce", f"shard{rank // 4}:all_reduce/1"
        usual = (rep + "*" * (rank not in (0, 3, 4, 7)), f"{shard}*")
        last = (f"{shard}@77*", f"{rep}@78*") if rank in (1, 6) else usual
        ranks[rank] = " ".join([rep, shard, rep, shard, *last, f"{rep}*", f"{shard}*"])
    found = asked(tmp_path, ranks, groups=groups, after=601.0, mesh=True)
    assert (found.outcome, found.culprits, code(found)) == ("hang", (1, 6), "HD107")
    assert "uses `shard`" in found.verdict or "use `shard`" in found.verdict


def replicas(**last: str) -> tuple[dict[int, str], dict[str, list[int]]]:
    """Pipelines of two stages: rank 0 and 1, 2 and 3, …; of each micro-batch every stage reduces across them.
    ``last``: pipeline → what its stages issue behind the first reduction of the last round: '+' is another that
    completed, '…' one under way."""
    groups = {f"dp{stage}": [2 * at + stage for at in range(len(last))] for stage in range(2)}
    ranks = {}
    for at, ends in enumerate(last.values()):
        for stage, message in enumerate((f"send>{2 * at + 1}", f"recv<{2 * at}")):
            batch = f"{message} dp{stage}:all_gather"
            words = f"{batch} {batch} all_reduce {batch} {batch} all_reduce {batch} {ends}"
            ranks[2 * at + stage] = words.replace("+", batch).replace("…", f"{batch}*")
    return ranks, groups


def test_of_two_pipelines_that_differ_from_the_first_round_on_either_may_be_right(tmp_path: Path) -> None:
    groups = {"dp0": [0, 2], "dp1": [1, 3]}
    ranks = {0: "send>1 dp0:all_gather*", 1: "recv<0 dp1:all_gather*", 2: "send>3 all_reduce*", 3: "recv<2 all_reduce*"}
    found = asked(tmp_path, ranks, groups=groups, mesh=True, after=601.0)
    assert found.confidence == "possible"
    assert {found.culprits, *found.alternatives} >= {(0, 1), (2, 3)}


def test_a_stage_alone_is_no_replica(tmp_path: Path) -> None:
    """Rank 2 skips its reduction; its pipeline does not."""
    ranks, groups = replicas(a="… all_reduce*", b="… all_reduce*", c="… all_reduce*")
    ranks[2] = ranks[2].replace("dp0:all_gather*", "")
    assert asked(tmp_path, ranks, groups=groups, mesh=True, after=601.0).culprits == (2,)
