"""A lock held over a collective, from the source of two threads' lines."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.source.guards import Sources
from hangdoc.diagnosis.source.locks import held, one_owner, wanted
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

FILE = "/job/train.py"
SOURCES = Sources(
    (
        SourceText(
            FILE, "run", 1, "def run(self):\n    with self.lock, open(p) as f:\n        x = 1\n        reduce(x)"
        ),
        SourceText(FILE, "add", 6, "def add(self):\n    self.lock.acquire()\n    with guard():\n        pass"),
    )
)


@pytest.mark.parametrize(
    ("line", "names"), [(2, {"self.lock"}), (4, set()), (7, {"self.lock"}), (8, set()), (99, set())]
)
def test_what_a_line_wants_to_lock(line: int, names: set[str]) -> None:
    assert wanted(Frame(FILE, line, "f"), SOURCES) == names


BY_HAND = Sources(
    (
        SourceText(
            FILE,
            "save",
            1,
            "def save(self):\n"
            "    lock.acquire()\n"
            "    if a:\n"
            "        self.guard.acquire()\n"
            "        reduce(x)\n"
            "        self.guard.release()\n"
            "        reduce(y)\n"
            "    lock.release()\n"
            "    reduce(z)",
        ),
    )
)


@pytest.mark.parametrize(("line", "names"), [(5, {"self.guard", "lock"}), (7, {"lock"}), (9, set()), (2, set())])
def test_what_is_held_by_hand(line: int, names: set[str]) -> None:
    assert {name for name, _ in held((Frame(FILE, line, "Saver.save"),), BY_HAND)} == names


def test_what_is_held_around_a_line() -> None:
    found = held((Frame(FILE, 4, "Metrics.run"), Frame("/elsewhere.py", 4, "f")), SOURCES)
    assert found == [("self.lock", Frame(FILE, 2, "Metrics.run"))]
    assert held((Frame(FILE, 2, "Metrics.run"),), SOURCES) == []  # it is at the `with` itself


def test_two_objects_of_one_name_are_not_one_lock() -> None:
    mine = Frame(FILE, 4, "Metrics.run")
    assert one_owner("self.lock", mine, Frame(FILE, 7, "Metrics.add"))
    assert not one_owner("self.lock", mine, Frame(FILE, 7, "Cache.add"))
    assert not one_owner("lock", mine, Frame("/job/other.py", 7, "add"))
    assert one_owner("lock", mine, Frame(FILE, 7, "add"))
