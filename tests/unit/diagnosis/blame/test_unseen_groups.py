"""Groups that only the store tells of: the dimensions they make, and which rank they allow to blame."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cases import case

from hangdoc import api
from hangdoc.diagnosis.blame.unseen_groups import _dimensions
from hangdoc.model.snapshot import JobSnapshot


def test_groups_that_follow_each_other_make_dimensions() -> None:
    rows, columns, pair, alone = ((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3),), (2,)
    assert _dimensions([*rows, *columns, *pair, alone]) == [rows, columns, pair]


def lanes() -> JobSnapshot:
    return api.load(case("lanes_skip_attach"))


def test_without_the_store_nothing_tells_groups_apart() -> None:
    found = api.diagnose(replace(lanes(), store=None))
    assert (found.culprits, found.alternatives, found.confidence) == ((0, 2), ((1, 3, 4, 5),), "possible")
    assert "alone" not in found.verdict


@pytest.mark.parametrize(
    ("groups", "culprits", "alternatives"), [("123", (1,), ((4,),)), ("12", (1,), ()), ("3", (4,), ())]
)
def test_the_rank_to_blame_is_one_that_the_groups_allow(
    groups: str, culprits: tuple[int, ...], alternatives: tuple[tuple[int, ...], ...]
) -> None:
    job = lanes()
    assert job.store is not None
    known = tuple(group for group in job.store.groups if group.name in groups)
    found = api.diagnose(replace(job, store=replace(job.store, groups=known)))
    assert (found.culprits, found.alternatives) == (culprits, alternatives)
    assert (found.confidence == "possible") is bool(alternatives)
