"""Processes that give one rank to init_process_group(): who is to blame, and where nobody is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cases import case

from hangdoc import api
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import JobSnapshot


def giving(ranks: list[int], size: str = "3") -> JobSnapshot:
    """A job of three that were started as ranks 0, 1 and 2, and join as these ranks."""

    def frame(each: Frame, rank: int) -> Frame:
        given = {"rank": str(rank), "world_size": size} if each.function.endswith("init_process_group") else {}
        return replace(each, locals=tuple(replace(v, value=given.get(v.name, v.value)) for v in each.locals))

    job, changed = api.load(case("joined_as_one_rank")), []
    for snapshot, rank in zip(job.ranks, ranks, strict=True):
        assert snapshot.process is not None
        looks = tuple(
            replace(
                look, threads=tuple(replace(t, frames=tuple(frame(f, rank) for f in t.frames)) for t in look.threads)
            )
            for look in snapshot.process.looks
        )
        changed.append(replace(snapshot, process=replace(snapshot.process, looks=looks)))
    return replace(job, ranks=tuple(changed))


def diagnosed(ranks: list[int], size: str = "3") -> Diagnosis:
    return api.diagnose(giving(ranks, size))


@pytest.mark.parametrize(("given", "culprits"), [([0, 1, 1], (2,)), ([0, 0, 2], (1,)), ([0, 0, 0], (1, 2))])
def test_whoever_gives_the_rank_of_another_that_gives_it_as_well_is_to_blame(
    given: list[int], culprits: tuple[int, ...]
) -> None:
    found = diagnosed(given)
    assert found.cause is not None and found.cause.code == "HD301"
    assert (found.culprits, found.confidence) == (culprits, "certain")


def test_where_the_owner_gives_another_one_it_is_open_who_is_wrong() -> None:
    found = diagnosed([1, 1, 0])
    assert (found.outcome, found.confidence) == ("hang", "possible")
    assert {*found.culprits, *(rank for side in found.alternatives for rank in side)} == {0, 1}


@pytest.mark.parametrize(("given", "size"), [([0, 1, 2], "3"), ([0, 0, 1], "2")])
def test_ranks_of_their_own_and_parts_that_make_a_job_of_their_own_share_none(given: list[int], size: str) -> None:
    assert "join as one rank" not in diagnosed(given, size).verdict
