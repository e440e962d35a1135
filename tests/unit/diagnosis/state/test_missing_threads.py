"""A thread is missing on a rank only where all others have it, and their stacks were read."""

from __future__ import annotations

from dataclasses import replace

from cases import case

from hangdoc import api
from hangdoc.diagnosis.state.missing_threads import missing_threads
from hangdoc.model.snapshot import RankSnapshot


def ranks() -> dict[int, RankSnapshot]:
    """Rank 1's thread `decode-stats` has died."""
    return {each.rank: each for each in api.load(case("worker_of_a_dead_reader")).ranks}


def test_what_all_others_have() -> None:
    (found,) = missing_threads(ranks(), 1)
    assert (found.name, found.others, found.where.function) == ("decode-stats", (0, 2), "ReportThread.run")
    assert missing_threads(ranks(), 0) == []


def test_a_rank_without_stacks_decides_nothing() -> None:
    unseen = {rank: replace(each, process=None) if rank == 2 else each for rank, each in ranks().items()}
    assert missing_threads(unseen, 1) == []


def test_a_thread_of_some_ranks_only_is_their_own() -> None:
    one = ranks()
    assert missing_threads({0: one[0], 1: one[1], 2: one[1]}, 1) == []
