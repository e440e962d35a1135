"""Jobs whose ranks issue asynchronous calls and wait for them late: as on a device, the line that waits is not to
blame.

One program as a real job; the others are saved cases (tests/data/*/async_*) and part of tests/accuracy/run.py.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from conftest import unless_torch_aborts
from own_launcher import by_hand

from hangdoc import scenarios

if TYPE_CHECKING:
    from conftest import Watch

PROGRAM = Path(__file__).parents[1] / "accuracy" / "programs" / "async_crossed.py"


def command(folder: Path) -> list[str]:
    return by_hand(f"3:{shutil.copy(PROGRAM, folder)}")


def test_the_skipped_call_is_named_and_not_the_harmless_order(watch: Watch, tmp_path: Path) -> None:
    expected = scenarios.read(PROGRAM)
    assert expected is not None
    finished = watch(command(tmp_path))
    assert finished.document is not None, finished.explain()
    wrong = [row for row in scenarios.compare(expected, finished.document) if not row.agrees]
    assert not wrong, finished.explain()
    assert finished.document["divergence"]["branch"]["condition"] == "if rank == 1 and not FIXED:"
    assert not finished.survivors


def test_handles_in_another_order_on_each_rank_are_no_news(watch: Watch, tmp_path: Path) -> None:
    finished = unless_torch_aborts(lambda: watch(command(tmp_path), env={"FIXED": "1"}))
    assert finished.status == 0, finished.explain()
    assert finished.document is None, finished.explain()
