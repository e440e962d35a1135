"""A job whose branches are recorded ends, whatever comes in between, and computes what it does unrecorded.

A stage of its own (minutes): ``pytest tests/stress``. On the Pythons that have the recorder.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import Finished, Watch, unless_torch_aborts
from pythons import CACHE, TORCH

from hangdoc.sidecar.options import RECORDED

pytestmark = pytest.mark.timeout(600)

PROGRAM = Path(__file__).with_name("branching.py")
ENDS = ("in order", "running", "at once")
STARTS = 3
DEADLINE = 120.0


@pytest.fixture(params=("3.12", "3.13"))
def python(request: pytest.FixtureRequest) -> Path:
    found = CACHE / f"python{request.param}-torch{TORCH}" / "bin" / "python"
    if not found.exists() or subprocess.run([found, "-c", "import torch"], capture_output=True, check=False).returncode:
        pytest.skip(f"no torch in {found}: python tests/helpers/pythons.py {request.param} makes it")
    return found


@pytest.mark.parametrize("end", ENDS)
def test_a_recorded_job_ends_and_computes_the_same(python: Path, watch: Watch, end: str) -> None:
    line = [str(python), *("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"), str(PROGRAM), end]

    def run(*record: str) -> dict[int, dict[str, Any]]:
        def once() -> Finished:
            return watch(line, "--record", ",".join(record), stall_after=60, deadline=DEADLINE)

        done = unless_torch_aborts(once)
        assert done.status == 0, done.explain()
        assert done.survivors == ()
        ranks = [json.loads(said) for said in done.stdout.splitlines() if said.startswith("{")]
        return {rank["rank"]: rank for rank in ranks}

    off = run(*(what for what in RECORDED if what != "branches"))
    assert off[0]["same"]["caught"]
    for _ in range(STARTS):
        on = run(*{**dict.fromkeys(RECORDED), "branches": None})
        for rank in (0, 1):
            assert "hangdoc" not in off[rank]["tools"]
            assert "hangdoc" in on[rank]["tools"]
            assert on[rank]["same"] == off[rank]["same"]
