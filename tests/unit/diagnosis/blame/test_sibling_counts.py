"""The side of a message without a partner whose count is odd."""

from __future__ import annotations

import pytest
from cases import case

from hangdoc import api
from hangdoc.diagnosis.blame import sibling_counts
from hangdoc.diagnosis.blame.message_blame import OneTooMany
from hangdoc.diagnosis.blame.sibling_counts import odd_among_siblings
from hangdoc.diagnosis.context import Case


@pytest.fixture
def chain() -> Case:
    return Case(api.load(case("middle_stage_expects_one_more")))


def test_a_stage_awaits_one_too_many_where_the_next_has_as_many_as_the_one_before_has_sent(chain: Case) -> None:
    found = odd_among_siblings(chain)
    assert found is not None
    assert isinstance(found.found, OneTooMany)
    assert found.culprits == (1,)


def test_it_is_not_blamed_where_it_has_handed_on_another_number(chain: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = sibling_counts.messages_sent
    monkeypatch.setattr(sibling_counts, "messages_sent", lambda of, a, b: sent(of, a, b) - (a == 1))
    assert odd_among_siblings(chain) is None


def test_it_is_not_blamed_where_others_have_had_a_last_message(chain: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sibling_counts, "issued_to_others", lambda *_: chain.activities[0].stack)
    assert odd_among_siblings(chain) is None
