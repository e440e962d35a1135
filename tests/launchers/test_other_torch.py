"""A backend whose calls c10d's hooks record, on torch 2.15: each has a recorder of its own there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Watch

pytestmark = pytest.mark.timeout(300)
BOARD = Path(__file__).parents[1] / "integration" / "programs" / "board.py"
ASK = "import torch; print(hasattr(torch._C._distributed_c10d, '_dump_fr_trace_file'))"


@pytest.fixture(scope="module")
def torch215() -> str:
    """A Python with torch 2.15: this one, or that of the variable."""
    for python in filter(None, (os.environ.get("HANGDOC_TEST_PYTHON_OF_TORCH_215"), sys.executable)):
        done = subprocess.run([python, "-c", ASK], capture_output=True, text=True, timeout=120, check=False)
        if done.stdout.strip() == "True":
            return python
    pytest.skip("no torch 2.15 here: HANGDOC_TEST_PYTHON_OF_TORCH_215 names a Python that has it")


def ranks(python: str) -> list[str]:
    return [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(BOARD)]


def test_its_history_tells_who_skipped_a_call(torch215: str, watch: Watch) -> None:
    done = watch(ranks(torch215), stall_after=5)
    assert done.status == 124, done.explain()
    assert done.document is not None
    # Without the history it "could also be rank 0", and is no more than possible.
    assert (done.document["outcome"], done.document["culprits"]) == ("hang", [1]), done.explain()
    assert done.document["confidence"] == "likely", done.explain()
    assert "At #12" in done.stderr, done.explain()
    assert done.survivors == ()


def test_its_calls_are_not_taken_for_pending_ones(torch215: str, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIXED", "1")
    done = watch(ranks(torch215), stall_after=5)
    assert (done.status, done.document) == (0, None), done.explain()
