"""Ranks that name others as their peers, which name only each other."""

from __future__ import annotations

from dataclasses import replace

from cases import DATA

from hangdoc import api
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.messages.faults import named_by_nobody
from hangdoc.model.journal import Journal
from hangdoc.model.snapshot import JobSnapshot

TWO_RINGS = DATA / "HD202" / "peers_of_the_other_half.hangdoc"
"""Ranks 0 to 2 pass messages around; ranks 3 to 5 take ranks 0 to 2 for their neighbors."""


def found(job: JobSnapshot) -> frozenset[int]:
    return named_by_nobody(Case(job))


def with_journals(job: JobSnapshot, *ranks: int, **changes: object) -> JobSnapshot:
    def changed(journal: Journal | None) -> Journal | None:
        return replace(journal, **changes) if journal is not None else None  # type: ignore[arg-type]

    every = (replace(r, journal=changed(r.journal)) if r.rank in ranks else r for r in job.ranks)
    return replace(job, ranks=tuple(every))


def test_the_ranks_whose_messages_all_lack_a_partner_are_told_from_those_whose_all_have_one() -> None:
    assert found(api.load(TWO_RINGS)) == {3, 4, 5}


def test_peers_that_passed_nothing_there_may_have_left_their_messages_out() -> None:
    assert found(with_journals(api.load(TWO_RINGS), 0, 1, 2, point_to_points=())) == frozenset()


def test_peers_whose_journal_has_forgotten_messages_may_have_named_them() -> None:
    assert found(with_journals(api.load(TWO_RINGS), 0, 1, 2, forgotten=4)) == frozenset()
