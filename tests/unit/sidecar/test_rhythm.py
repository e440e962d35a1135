from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdoc.sidecar.rhythm import LEAST_PATIENCE, MOST_PATIENCE, Recaptures, Rhythm


def test_without_history_patience_is_half_a_minute() -> None:
    assert Rhythm(None, 0.0).patience == LEAST_PATIENCE


def test_patience_is_three_times_the_longest_gap_that_ended_by_itself() -> None:
    rhythm = Rhythm(None, 0.0)
    for moment in (1.0, 2.0, 42.0, 43.0):
        rhythm.moved(moment)
    assert rhythm.patience == 120.0
    assert rhythm.quiet_for(50.0) == 7.0


def test_patience_has_an_end() -> None:
    rhythm = Rhythm(None, 0.0)
    rhythm.moved(5000.0)
    assert rhythm.patience == MOST_PATIENCE


def test_told_patience_is_never_changed() -> None:
    rhythm = Rhythm(5.0, 0.0)
    rhythm.moved(1000.0)
    assert rhythm.patience == 5.0


def test_a_rank_that_came_teaches_nothing() -> None:
    rhythm = Rhythm(None, 0.0)
    rhythm.changed(100.0)
    assert rhythm.quiet_for(101.0) == 1.0
    assert rhythm.patience == LEAST_PATIENCE


def test_our_own_sleep_is_not_the_jobs_silence() -> None:
    rhythm = Rhythm(5.0, 0.0)
    rhythm.moved(10.0)
    rhythm.slept(3600.0)
    assert rhythm.quiet_for(3611.0) == pytest.approx(1.0)


@given(st.lists(st.floats(min_value=0.0, max_value=1e4), max_size=30))
def test_patience_stays_in_its_bounds(gaps: list[float]) -> None:
    rhythm, now = Rhythm(None, 0.0), 0.0
    for gap in gaps:
        now += gap
        rhythm.moved(now)
    assert LEAST_PATIENCE <= rhythm.patience <= MOST_PATIENCE


def looks(give_up_after: float, patience: float, until: int) -> list[int]:
    recaptures = Recaptures(give_up_after)
    taken = []
    for quiet in range(until):
        if recaptures.due(quiet, patience):
            recaptures.took(quiet)
            taken.append(quiet)
    return taken


def test_looks_grow_rarer_until_one_a_minute() -> None:
    assert looks(600.0, 30.0, 300) == [30, 35, 45, 65, 105, 165, 225, 285]


def test_one_look_is_taken_when_patience_ends() -> None:
    assert 600 in looks(600.0, 30.0, 700)
    assert 17 in looks(17.0, 5.0, 60)


def test_after_it_looks_begin_anew() -> None:
    """Not at 65, where a look at 25 s happened to see a rank at work."""
    assert looks(25.0, 8.0, 130) == [8, 13, 23, 25, 30, 40, 60, 100]


def test_no_look_before_patience() -> None:
    assert looks(600.0, 50.0, 50) == []
