"""Loops that go on from item to item between two looks."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.state.rounds import going_round
from hangdoc.model.process import Frame, Local, Process, ProcessState, Thread
from hangdoc.model.snapshot import SourceText

FILE = "/job/scan.py"


def index_of(text: str, then: str, now: str) -> str:
    """The name that counts the rounds of a loop at line 1, around the sleep at line 2."""

    def look(at: float, value: str) -> ProcessState:
        frames = (Frame(FILE, 2, "<module>", (Local("index", value),)),)
        return ProcessState(at=at, state="S", threads=(Thread(tid=1, name="MainThread", state="S", frames=frames),))

    process = Process(pid=1, ppid=0, role="rank", looks=(look(0.0, then), look(1.0, now)))
    found = going_round(process, Sources((SourceText(FILE, "<module>", 1, text),)))
    return f"{found.name} {found.then} {found.now}" if found is not None else ""


def test_another_item_is_progress() -> None:
    assert index_of("for index in range(48):\n    time.sleep(1)\n", "35", "43") == "index 35 43"


@pytest.mark.parametrize(
    ("text", "now"),
    [
        ("for index in range(48):\n    time.sleep(1)\n", "35"),
        ("while index < 48:\n    time.sleep(1); index += 1\n", "43"),
        ("for index in count():\n    time.sleep(1)\n", "43"),
        ("for index in range(600):\n    time.sleep(1)\n    if path.exists():\n        break\n", "43"),
    ],
)
def test_what_may_poll_is_none(text: str, now: str) -> None:
    assert index_of(text, "35", now) == ""
