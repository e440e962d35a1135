"""Which side alone has run what skips the call."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cases import case

from hangdoc import api
from hangdoc.diagnosis.blame import usual_way
from hangdoc.diagnosis.blame.deciders import story as blame
from hangdoc.diagnosis.blame.usual_way import left_usual_way
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Diverged
from hangdoc.diagnosis.frames.native_places import with_native_frames
from hangdoc.model.kinds import Confidence


@pytest.fixture
def job() -> Case:
    return Case(with_native_frames(api.load(case("loss_of_one_volume_not_finite"))))


def test_who_alone_has_skipped_a_call_that_it_made_before_is_blamed(job: Case) -> None:
    found = blame(job)
    assert isinstance(found.found, Diverged)
    assert (found.culprits, found.alternatives, found.confidence) == ((1,), (), Confidence.LIKELY)


def test_neither_is_where_the_other_went_an_odd_way_too(job: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    found = blame(job).found
    assert isinstance(found, Diverged)
    way = found.alignment, found.branch_points
    assert left_usual_way(job, *way) is not None
    alone = usual_way.ran_alone(job, ((1,), (0,)))
    monkeypatch.setattr(usual_way, "ran_alone", lambda *_: [replace(each, side=1) for each in alone])
    assert left_usual_way(job, *way) is None
