"""Ranks that a launcher promises on this host, and that have no process."""

from __future__ import annotations

import pytest

from hangdoc.capture.find.promised import absent
from hangdoc.capture.find.target import RankTarget
from hangdoc.diagnosis.state.unseen import hidden_ranks
from hangdoc.model.process import Process
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot, RendezvousStore

TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "LOCAL_WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "2", "WORLD_SIZE": "4"}


def target(rank: int, local: int, **environment: str) -> RankTarget:
    return RankTarget(rank, 10 + rank, "environment", 4, local, environment=tuple(sorted(environment.items())))


def test_of_a_job_on_two_hosts_only_this_hosts_own_rank_is_missing() -> None:
    found = absent([target(2, 0, **TORCHRUN)], "b")
    assert [(each.rank, each.local_rank, each.host, each.identity) for each in found] == [(3, 1, "b", "expected")]
    assert absent([target(2, 0, **TORCHRUN), target(3, 1, **TORCHRUN)], "b") == []


@pytest.mark.parametrize(
    "environment",
    [
        {
            name: value for name, value in TORCHRUN.items() if name != "TORCHELASTIC_RUN_ID"
        },  # Open MPI may deal them out
        {**TORCHRUN, "LOCAL_WORLD_SIZE": "3"},  # more than the world has from here on
        {"SLURM_NNODES": "2", "WORLD_SIZE": "4"},
    ],
)
def test_where_the_numbers_of_this_host_are_not_known_none_is_missing(environment: dict[str, str]) -> None:
    assert absent([target(2, 0, **environment)], "b") == []


def test_local_ranks_that_repeat_on_one_host_tell_of_no_other_host() -> None:
    """The program numbers its ranks after the slots of a fleet; all of them run here."""
    found = absent([target(rank, rank % 2) for rank in range(3)], "a")
    assert [(each.rank, each.identity) for each in found] == [(3, "expected")]
    assert absent([target(2, 0), target(3, 1)], "b") == []


def test_a_rank_that_its_own_host_misses_is_not_hidden() -> None:
    seen = RankSnapshot(2, "b", "environment", 4, 0, environment=tuple(TORCHRUN.items()), process=Process(7, 1, "rank"))
    gone = RankSnapshot(3, "b", "expected", 4, 1)
    elsewhere = RankSnapshot(0, "", "elsewhere", 4)
    assert hidden_ranks(JobSnapshot(1.0, "attach", world_size=4, ranks=(elsewhere, seen, gone)), ()) == {0}


@pytest.mark.parametrize(
    ("address", "mode", "parents", "hidden"),
    [
        ("127.0.0.1", "watch", (7, 7), set()),
        ("10.0.0.5", "watch", (7, 7), {2}),  # another host reaches that
        ("127.0.0.1", "attach", (7, 7), {2}),  # its starter may be a daemon, which serves others as well
        ("127.0.0.1", "watch", (7, 8), {2}),
    ],
)
def test_a_rank_that_only_a_process_below_the_program_can_start_is_not_hidden(
    address: str, mode: str, parents: tuple[int, int], hidden: set[int]
) -> None:
    seen = [
        RankSnapshot(rank, "a", "probe", 3, process=Process(20 + rank, parent, "rank"))
        for rank, parent in enumerate(parents)
    ]
    store = RendezvousStore(address, 29500)
    job = JobSnapshot(1.0, mode, world_size=3, ranks=(*seen, RankSnapshot(2, "a", "expected", 3)), store=store)
    assert hidden_ranks(job, ()) == hidden
