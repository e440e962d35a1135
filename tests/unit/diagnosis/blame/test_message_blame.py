"""Which side of a message without a partner is to blame."""

from __future__ import annotations

import pytest
from cases import case

from hangdoc import api
from hangdoc.diagnosis.blame import message_blame
from hangdoc.diagnosis.blame.message_blame import ExchangeTooMany, MissingPartner, partner
from hangdoc.diagnosis.context import Case
from hangdoc.model.message import Condition


def test_what_the_partner_alone_has_run_tells_more_than_the_shape_of_the_exchange(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Case(api.load(case("second_turn_of_ring_attach")))
    found = partner(job)
    assert found is not None
    assert isinstance(found.found, ExchangeTooMany)
    ((peer,), (waiter,)) = found.found.peers, found.culprits
    skips = Condition("if self.dirty:", "/home/me/train.py", 9)
    monkeypatch.setattr(message_blame, "skipped_alone", lambda _, rank: [skips] if rank == peer else [])
    other = partner(job)
    assert other is not None
    assert isinstance(other.found, MissingPartner)
    assert other.culprits == (peer,) != (waiter,)


def test_a_stage_that_waits_in_its_last_sends_is_not_blamed_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Case(api.load(case("middle_stage_expects_one_more_attach")))
    found = partner(job)
    assert found is not None
    assert isinstance(found.found, ExchangeTooMany)
    monkeypatch.setattr(message_blame, "has_sends_to_come", lambda _: False)
    other = partner(job)
    assert other is not None
    assert isinstance(other.found, MissingPartner)
