"""The progress line: on a terminal, after a second, and gone at the end."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator
from typing import TextIO

import pytest

from hangdoc import progress


@pytest.fixture
def terminal() -> Iterator[tuple[int, TextIO]]:
    """Both ends of a pseudo-terminal."""
    master, slave = os.openpty()
    with open(slave, "w", encoding="utf-8", closefd=False) as stream:
        yield master, stream
    os.close(master)
    os.close(slave)


def test_it_says_what_takes_so_long_and_goes(terminal: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch) -> None:
    master, stream = terminal
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "_PATIENCE", 0.05)
    with progress.working("reading") as line:
        time.sleep(0.2)
        line.reading()(1200, 4096)
        time.sleep(3 * progress._REDRAW)
    said, deadline = "", time.monotonic() + 30
    while not said.endswith(" \r") and time.monotonic() < deadline:  # a terminal hands over what it has in parts
        if select.select([master], [], [], 0.1)[0]:
            said += os.read(master, 65536).decode()
    assert "\rhangdoc: reading … 0 s" in said
    assert "hangdoc: reading: 1,200 of 4,096 files … " in said
    assert said.endswith(" \r")
    assert "\n" not in said


def test_nothing_is_said_of_what_is_quick(terminal: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch) -> None:
    master, stream = terminal
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.working("reading"):
        pass
    os.set_blocking(master, False)
    with pytest.raises(BlockingIOError):
        os.read(master, 1)


def test_nothing_is_said_where_no_terminal_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    with progress.working("reading"):
        time.sleep(0.05)
    assert capsys.readouterr().err == ""
