"""With the journals alone: ranks that have diverged are reported before the job hangs, and healthy ones never."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from own_launcher import by_hand

if TYPE_CHECKING:
    from conftest import Watch

PROGRAM = Path(__file__).parent / "programs" / "diverged_early.py"
COMMAND = by_hand(f"2:{PROGRAM}")


@pytest.mark.parametrize("fixed", ["", "1"])
def test_a_divergence_is_reported_before_the_hang_and_only_where_there_is_one(watch: Watch, fixed: str) -> None:
    finished = watch(COMMAND, "--give-up-after", "6", env={"FIXED": fixed}, stall_after=3)
    told = [line for line in finished.stderr.splitlines() if line.startswith("hangdoc !")]
    if fixed:
        assert told == []
        assert finished.document is None, finished.explain()
        return
    assert len(told) == 1, finished.explain()
    assert "diverged" in told[0]
    source = PROGRAM.read_text().splitlines()
    once_too_often = 2 + next(n for n, line in enumerate(source) if "rank == 1" in line)
    for line in (once_too_often, once_too_often + 1):
        assert f"diverged_early.py:{line} main()" in told[0], told
    assert finished.document is not None, finished.explain()
    assert finished.document["culprits"] == [1]
    before = finished.stderr.index(told[0])
    assert before < finished.stderr.index("hangdoc ✖ hang"), finished.explain()
