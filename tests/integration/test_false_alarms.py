"""Jobs that stand still for longer than the threshold and are healthy: no hang may be raised."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Watch

PROGRAMS = Path(__file__).parent / "programs"


def torchrun() -> str:
    return shutil.which("torchrun", path=str(Path(sys.executable).parent)) or "torchrun"


@pytest.mark.parametrize("program", ["computes.py", "saves.py", "joins.py"])
def test_a_slow_but_healthy_job_ends_by_itself(program: str, watch: Watch) -> None:
    command = [torchrun(), "--standalone", "--nproc-per-node", "2", str(PROGRAMS / program)]
    finished = watch(command)
    assert finished.status == 0, finished.explain()
    assert "well ended" in finished.stdout, finished.explain()
    outcome = (finished.document or {}).get("outcome", "healthy")
    assert outcome in ("healthy", "slow"), finished.explain()
    assert not finished.survivors
