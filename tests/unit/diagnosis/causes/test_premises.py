"""A clause is said only where its premise was seen: advice that fits another program is harm to this one."""

from __future__ import annotations

import pytest
from cases import diagnosed


@pytest.mark.parametrize(
    ("name", "said", "unsaid"),
    [
        # The others have ended.
        ("abort_after_a_peer_left", "Mend that failure", "wait for it"),
        ("wrapped_errors", "the others failed because it was gone", "wait for it"),
        ("follower_that_failed", "the others only wait for it", ""),
        # A process of somebody else's.
        ("joined_another_job", "MASTER_PORT of its own", "end process"),
        # Two tasks of one event loop block the one thread.
        ("coroutines", "in an order that all ranks share", "process group of its own"),
        # It ran to its end, with fewer calls; it never joined.
        ("device_calls_pending_at_shutdown", "the calls that the others make", "no early return"),
        # The lists of ranks are right: one rank calls it once more.
        ("node_topology", "Call new_group on every rank", "same list"),
        ("c_experts", "the same list of ranks", ""),
        # The sizes of a reduction in backward() are the model's; dtypes that are equal are not named.
        ("mesh_dumps_size", "same shape (", "dtype"),
        ("drain_notice", "set a flag", "__del__"),
        # The report names who holds the lock.
        ("barrier_under_lock", "the lock that rank 0 holds", "remove a lock file"),
        ("lock_over_pipe", "another process or this one", "Look at the process"),
    ],
)
def test_advice_has_its_premise(name: str, said: str, unsaid: str) -> None:
    fix = diagnosed(name).document["fix"]
    assert said in fix
    assert not unsaid or unsaid not in fix


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("early_return", "before it is tested"),
        ("preempt", "before it is tested"),
        # Each rank counts what it tests.
        ("one_round_later", "Let `self.updates` be the same on every rank"),
        ("one_round_later_by_hand", "Let `self.updates` be the same on every rank"),
        ("resumed_elsewhere", "Let `state.step` be the same on every rank"),
        # Another part of the test may have decided, or another test.
        ("lazy_mean_in_a_callback_attach", "at a point that every rank reaches"),
        # The driver never comes to the loop of those who serve.
        ("handler_of_follower", "at a point that every rank reaches"),
        # The others are at the entrance of the block that the test is in.
        ("partner_aside", "Call barrier after `with main_first():`"),
        # The others make the call while they evaluate it.
        ("any_ends_early", "not while `any("),
    ],
)
def test_ranks_agree_before_a_test_that_all_come_to(name: str, said: str) -> None:
    fix = diagnosed(name).document["fix"]
    assert said in fix
    assert (said == "before it is tested") == ("before it is tested" in fix)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        # The calls in `finally:`, and of the next step, are those of every round: what came before them was skipped.
        ("d_ingest", "Rank 1 skips the all_reduce at ingest.py:31"),
        ("mesh_norm_of_one_shard", "Rank 18 skips the all_reduce at norm_of_one_shard.py:70"),
        ("token_budget_under_no_sync", "Rank 2 skips the all_reduce at fsdp_accum.py:73"),
        # Others have made the call as well.
        ("retried_call", "Rank 1 calls all_reduce at retry_ok.py:10 save_step() once more than the others"),
        ("tried_again", "Rank 1 called all_reduce at retry_upload.py:49"),
        # No other has.
        ("callbacks", "Rank 0 alone calls all_gather"),
    ],
)
def test_alone_is_who_alone_has_made_the_call(name: str, said: str) -> None:
    assert diagnosed(name).document["verdict"].startswith(said)


@pytest.mark.parametrize("name", ["d_ingest", "mesh_norm_of_one_shard"])
def test_the_repair_of_a_skipped_call_adds_it(name: str) -> None:
    document = diagnosed(name).document
    assert {edit["edit"] for edit in document["repair"]["edits"]} == {"insert"}
    assert "calls that the others do not issue" not in document["why"]
