"""Whose store key is missing, by the keys that are there."""

from __future__ import annotations

import dataclasses

import pytest
from cases import case

from hangdoc import api
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.snapshot import JobSnapshot
from hangdoc.model.store import RendezvousStore

NAME = "store_keys_of_all"


def answered(there: tuple[str, ...], missing: tuple[str, ...], old: str = "", new: str = "") -> Diagnosis:
    """Ranks 0 and 1 wait for done/2/0, done/2/1 and done/2/2, rank 2 in an all_reduce, and the store was asked."""
    job: JobSnapshot = api.load(case(NAME))
    texts = tuple(dataclasses.replace(text, text=text.text.replace(old, new)) for text in job.sources)
    assert not old or texts != job.sources
    store = RendezvousStore("127.0.0.1", 29500, there=there, missing=missing)
    return api.diagnose(dataclasses.replace(job, store=store, sources=texts))


def test_the_rank_whose_key_alone_is_missing_has_left_it_out() -> None:
    found = answered(("done/1/2", "done/2/0", "done/2/1"), ("done/2/2",))
    assert (found.cause and found.cause.code, found.culprits, found.confidence) == ("HD305", (2,), "likely")
    assert found.verdict.startswith("Rank 2 has not set done/2/2 in the store, for which ranks 0 and 1 wait at")
    assert found.divergence is not None
    assert found.divergence.branch is not None
    assert found.divergence.branch.condition == "if metrics is None:"


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        ((), ("done/2/0", "done/2/1", "done/2/2")),  # another store's, or under another prefix
        (("done/2/0", "done/2/1", "done/2/7"), ("done/2/2",)),  # numbers of no ranks
        pytest.param(  # rank 1 waits only for its own, and for what is missing
            ("done/2/0",),
            ("done/2/1", "done/2/2"),
            marks=pytest.mark.xfail(strict=True, reason="the judge does not ask whose keys are by their numbers"),
        ),
    ],
)
def test_keys_that_do_not_say_whose_they_are(there: tuple[str, ...], missing: tuple[str, ...]) -> None:
    found = answered(there, missing)
    assert found.confidence == "possible"


@pytest.mark.parametrize("line", ["store.set(f", "announce(store, rank, epoch)\n    gather"])
def test_one_that_sets_the_keys_of_all_is_not_told_by_their_numbers(line: str) -> None:
    found = answered(("done/2/0", "done/2/1"), ("done/2/2",), f"    {line}", f"    for peer in range(world): {line}")
    assert found.confidence == "possible"


def test_a_key_that_may_have_been_deleted_is_no_proof() -> None:
    found = answered(("done/2/0", "done/2/1"), ("done/2/2",), "    dist.barrier()", "    store.delete_key(f'…')")
    assert (found.culprits, found.confidence) == ((2,), "possible")


@pytest.mark.parametrize(
    ("further", "culprits"),
    [
        ((), (1,)),
        (("/default_pg/0//shards/4/0",), (0, 1, 2, 3)),  # two names are not set by all
        (("/default_pg/0//1//cpu//0/0", "/default_pg/0//1//cpu//0/1"), (1,)),  # torch's own, of a smaller group
        (tuple(f"/mine/{number}x" for number in range(400)), (0, 1, 2, 3)),  # not all keys are known
    ],
)
def test_without_journals_the_only_name_that_all_but_some_set_tells(
    further: tuple[str, ...], culprits: tuple[int, ...]
) -> None:
    job: JobSnapshot = api.load(case("keys_of_all_but_one_attach"))
    assert job.store is not None
    keys = (*job.store.keys, *further)
    found = api.diagnose(dataclasses.replace(job, store=dataclasses.replace(job.store, keys=keys)))
    assert (found.cause and found.cause.code, found.culprits) == ("HD305", culprits)
