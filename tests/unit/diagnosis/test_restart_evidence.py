"""That agents count restarts differently is evidence, and only that."""

from __future__ import annotations

from dataclasses import replace

from cases import case

from hangdoc import api
from hangdoc.diagnosis import diagnose


def test_differing_counts_of_restarts_are_told_and_change_nothing_else() -> None:
    job = api.load(case("uneven_batches"))
    plain = diagnose(job)
    ranks = tuple(replace(rank, restart=int(rank.rank > 0)) for rank in job.ranks)
    told = diagnose(replace(job, ranks=ranks))
    (line,) = set(told.evidence) - set(plain.evidence)
    assert (line.kind, line.ranks) == ("process", tuple(rank.rank for rank in job.ranks))
    assert line.text.startswith("TORCHELASTIC_RESTART_COUNT is 0 on rank 0, 1 on rank")
    assert replace(told, evidence=plain.evidence) == plain


def test_equal_counts_of_restarts_are_not() -> None:
    job = api.load(case("uneven_batches"))
    again = replace(job, ranks=tuple(replace(rank, restart=2) for rank in job.ranks))
    assert diagnose(again).evidence == diagnose(job).evidence
