from __future__ import annotations

import math

import pytest

from hangdoc.model.durations import read_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("1.5", 1.5),
        ("90s", 90.0),
        ("5m", 300.0),
        ("5min", 300.0),
        ("1h", 3600.0),
        ("1h30m", 5400.0),
        ("1h 30m", 5400.0),
        ("2D", 172800.0),
        ("250ms", 0.25),
        ("0.5h", 1800.0),
        ("inf", math.inf),
        ("1e3", 1000.0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert read_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "5x", "5m3", "h5", "5 minutes", "nan", "--5m", "٣s", "5mm"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError):
        read_duration(text)
