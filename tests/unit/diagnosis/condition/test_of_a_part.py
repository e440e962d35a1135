"""A condition that the rank decides once and for all, against one that comes out so at a time of its own."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.condition.elsewhere.set_before import is_of_a_part
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.message import Condition
from hangdoc.model.snapshot import SourceText

FILE = "/job/train.py"


@pytest.mark.parametrize(
    ("setting", "test", "expected"),
    [
        ("last = rank == world - 1", "last", True),
        ("first, last = rank == 0, rank == world - 1", "last", True),
        ("role = 'teacher' if rank == teacher else 'student'", "role == 'teacher'", True),
        ("pass", "rank == 0", True),
        ("pass", "rank == 0 and late", False),
        ("pass", "step % world == rank", False),
        ("last = step % world == rank", "last", False),
        ("last = step == 9", "last", False),
        ("pass", "control.should_save", False),
    ],
)
def test_what_the_rank_decides_from_the_start(setting: str, test: str, expected: bool) -> None:
    text = f"def run(rank, world, step):\n    {setting}\n    if {test}:\n        log()\n"
    sources = Sources((SourceText(FILE, "run", 1, text),))
    assert is_of_a_part(sources, Condition(f"if {test}:", FILE, 3)) is expected
