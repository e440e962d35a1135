"""Looking ahead: when it looks, and that it speaks once, after two looks that agree."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hangdoc import early_warning
from hangdoc.early_warning import LookAhead

SOCKETS = {0: Path("/nonexistent/0.sock"), 1: Path("/nonexistent/1.sock")}
DIVERGED = {"key": "('0', 3)", "text": "rank 1 and rank 0 diverged"}


class Child:
    """A look that has ended with this output."""

    def __init__(self, found: dict[str, str]) -> None:
        self.output = json.dumps(found).encode()

    def poll(self) -> int | None:
        return 0

    def communicate(self) -> tuple[bytes, None]:
        return self.output, None


def play(monkeypatch: pytest.MonkeyPatch, answers: list[dict[str, str]], seconds: int) -> tuple[list[str], list[int]]:
    """Tick once a second; returns what was said and when it looked."""
    looked: list[int] = []
    now = [0]

    def start(*_: Any, **__: Any) -> Child:
        looked.append(now[0])
        return Child(answers[min(len(looked), len(answers)) - 1])

    monkeypatch.setattr(early_warning.subprocess, "Popen", start)
    ahead, said = LookAhead(first=10.0), []
    for second in range(seconds):
        now[0] = second
        news = ahead.tick(SOCKETS, float(second))
        if news:
            said.append(news)
    return said, looked


def test_a_healthy_job_is_left_alone_for_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    said, looked = play(monkeypatch, [{}], 400)
    assert said == []
    gaps = [b - a for a, b in pairwise(looked)]
    assert looked[0] == 10
    assert gaps == sorted(gaps)
    assert gaps[-1] > 4 * gaps[0]


def test_a_divergence_is_reported_once_after_two_looks_that_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    said, looked = play(monkeypatch, [{}, DIVERGED], 600)
    assert said == [DIVERGED["text"]]
    assert len(looked) >= 3


def test_looks_that_disagree_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    said, _ = play(monkeypatch, [DIVERGED, {}, {**DIVERGED, "key": "other"}, {}], 300)
    assert said == []


def test_rubbish_from_the_look_is_no_news() -> None:
    assert early_warning._read(b"\xff{") == {}
    assert early_warning._read(b"[1]") == {}


def test_half_a_picture_proves_nothing() -> None:
    assert early_warning.look(SOCKETS) == {}
