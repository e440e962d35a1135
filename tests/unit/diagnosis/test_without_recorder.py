"""A journal that holds no call (a torch without a recorder, or one that is switched off) is no history: what the
stacks show must lead to the same verdict with it and without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from cases import case, names

from hangdoc import api
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.journal import Journal
from hangdoc.model.snapshot import JobSnapshot

ATTACHED = [case(name) for name in names() if "attach" in name][::3]
assert len(ATTACHED) > 5


def with_journals(job: JobSnapshot, journal: Journal | None) -> JobSnapshot:
    return replace(job, ranks=tuple(replace(rank, journal=journal) for rank in job.ranks))


def told(found: Diagnosis) -> tuple[object, ...]:
    cause = found.cause.code if found.cause else None
    return found.outcome, found.culprits, found.alternatives, cause, found.confidence, found.verdict


@pytest.mark.parametrize("path", ATTACHED, ids=lambda path: path.stem)
def test_an_empty_journal_says_what_none_says(path: Path) -> None:
    """And so does a watch's."""
    job = api.load(path)
    attached, empty = api.diagnose(with_journals(job, None)), with_journals(job, Journal("probe"))
    assert told(api.diagnose(empty)) == told(attached)
    watched = api.diagnose(replace(empty, mode="watch", stalled_for=3600.0))
    assert (watched.culprits, watched.cause, watched.confidence) == (
        attached.culprits,
        attached.cause,
        attached.confidence,
    )


def test_groups_that_a_rank_made_are_known_without_a_recorder() -> None:
    job = api.load(case("unlike_groups"))
    ranks = (replace(r, journal=r.journal and replace(r.journal, calls=())) for r in job.ranks)
    found = api.diagnose(replace(job, ranks=tuple(ranks)))
    assert (found.cause and found.cause.code, found.culprits, found.confidence) == ("HD303", (3,), "likely")


def test_the_advice_fits_a_job_that_is_watched_already() -> None:
    job = api.load(case("executor_collective_attach"))
    standing = next(rank for rank in job.ranks if rank.process is not None)
    same = tuple(
        replace(rank, process=standing.process and replace(standing.process, pid=100 + rank.rank)) for rank in job.ranks
    )
    job = replace(job, ranks=same)
    fixes = [api.diagnose(with_journals(job, journal)).fix for journal in (None, Journal("probe"))]
    assert "hangdoc watch" in fixes[0]
    assert "hangdoc watch" not in fixes[1]
    assert "flight recorder" in fixes[1]
