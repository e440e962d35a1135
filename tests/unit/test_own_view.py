"""Whether what one host sees of its own ranks fits another host's word that the job hangs."""

from __future__ import annotations

from dataclasses import replace

import cases
import pytest
from hosts_of_a_case import on_two_hosts
from many_hosts import host

from hangdoc import own_view
from hangdoc.model.codec import load_snapshot
from hangdoc.model.snapshot import JobSnapshot


def parts(name: str, first: set[int]) -> tuple[JobSnapshot, JobSnapshot]:
    """A saved case of one host as two would have shown it."""
    return on_two_hosts(load_snapshot(cases.case(name)), first)


@pytest.mark.parametrize(
    ("name", "first"),
    [("while_counts_after_its_call", {0, 2}), ("wrong_peer_in_ring", {0, 1}), ("store_keys_of_all", {0})],
)
def test_ranks_that_wait_for_those_of_another_host_fit_a_hang(name: str, first: set[int]) -> None:
    assert [own_view.doubt(part) for part in parts(name, first)] == ["", ""]


def test_each_of_many_hosts_that_waits_fits_a_hang() -> None:
    assert [own_view.doubt(host(number, 12, 2, 100)) for number in range(12)] == [""] * 12


def test_ranks_that_sleep_fit_no_hang_before_the_user_gives_up() -> None:
    sleeps, waits = parts("extra_barrier_then_sleep", {0})
    assert own_view.doubt(sleeps) == "on this host, rank 0 does not wait for another rank (sleeping)"
    assert own_view.doubt(waits) == ""
    assert own_view.doubt(replace(sleeps, stalled_for=sleeps.give_up_after)) == ""


@pytest.mark.parametrize("name", ["straggler", "compiling", "computes_beside_messages_left_to_the_background"])
def test_a_rank_that_waits_for_one_of_its_own_host_that_works_fits_no_hang(name: str) -> None:
    job = load_snapshot(cases.case(name))
    assert "does not wait for another rank" in own_view.doubt(job)


def test_where_no_rank_lives_nothing_is_harmed() -> None:
    ended = parts("key_of_a_dead_rank", {0})[1]
    assert own_view.doubt(ended) == ""


def test_ranks_that_cannot_be_seen_fit_nothing() -> None:
    job = host(0, 2, 2, 100)
    blind = [
        replace(rank, journal=None, process=rank.process and replace(rank.process, looks=())) for rank in job.ranks
    ]
    assert own_view.doubt(replace(job, ranks=tuple(blind))) == "no rank on this host could be looked at"


def test_a_bug_ends_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(snapshot: JobSnapshot) -> None:
        raise KeyError("x")

    monkeypatch.setattr(own_view, "diagnose", fails)
    assert "could not diagnose what this host shows (KeyError: 'x')" in own_view.doubt(host(0, 2, 2, 10))
