"""Hangs by a mechanism that no rule knows: the saved ones, with the rules that know theirs switched off."""

from __future__ import annotations

import pytest
from cases import case, persons_word

from hangdoc import api
from hangdoc.diagnosis.blame import deciders

KNOWN = {"waiting_threads"}


@pytest.fixture(autouse=True)
def _unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    general = tuple(decide for decide in deciders.DECIDERS if decide.__name__ not in KNOWN)
    assert len(general) == len(deciders.DECIDERS) - len(KNOWN)
    monkeypatch.setattr(deciders, "DECIDERS", general)


@pytest.mark.parametrize(
    "name",
    [
        "async_server_short_of_one",
        "barrier_of_processes_left_out",
        "counted_meeting_passed_by",
        "event_not_set",
        "file_not_published_after_error",
        "fold_not_reported_attach",
        "lease_left_a_round_ago",
        "left_without_letting_go_what_others_await",
        "own_barrier_left_out",
        "page_not_published_attach",
        "rank_past_process_barrier",
    ],
)
def test_the_few_that_are_elsewhere_are_to_blame(name: str) -> None:
    found = api.diagnose(api.load(case(name)))
    expected, _ = persons_word(name)
    assert list(found.culprits) == expected["culprits"]
    assert found.confidence == "likely"
    assert found.divergence or found.cause


@pytest.mark.parametrize("name", ["rpc_all_wait_for_one_more", "gradient_left_out_of_round", "unset_key"])
def test_who_waits_for_an_answer_or_a_key_may_be_alone_in_that(name: str) -> None:
    found = api.diagnose(api.load(case(name)))
    expected, _ = persons_word(name)
    assert list(found.culprits) == expected["culprits"]
