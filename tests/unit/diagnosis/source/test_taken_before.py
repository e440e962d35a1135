"""Where does a function take the lock that it waits for further down?"""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.taken_before import taken_before
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

FILE = "/job/index.py"


def line_of(body: str, line: int) -> int | None:
    sources = Sources((SourceText(FILE, "load", 1, f"def load(baton):\n{body}"),))
    found = taken_before(Frame(FILE, line, "load"), sources)
    return found.line if found is not None else None


def test_the_lock_that_is_awaited_was_tried_for_above() -> None:
    body = "    mine = baton.try_acquire()\n    if mine:\n        return build(baton)\n    baton.wait()\n"
    assert line_of(body, 5) == 2


@pytest.mark.parametrize(
    "body",
    [
        "    other.try_acquire()\n    baton.wait()\n",
        "    baton.ready()\n    baton.wait()\n",
        "    baton.try_acquire()\n    baton.acquire()\n",
    ],
)
def test_none_for_another_lock_and_a_line_that_takes_it_itself(body: str) -> None:
    assert line_of(body, 3) is None
