"""Two folders of dumps of a real job on 16 GPUs, into two ranks of which faults were put, where they are at hand.

They lie beside the repository (../shared/data/nccl_dumps), and ``fault_injection.log`` in each says which ranks.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from hangdoc import api
from hangdoc.cli.diagnosing import EXIT_STATUS
from hangdoc.model.diagnosis import Diagnosis

DATA = Path(__file__).parents[4] / "shared" / "data" / "nccl_dumps"
TIMES = {"as they come": None, "removed": 0.0, "of the copy": 1_795_000_000.0}
"""Of the files, in Unix seconds."""

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the folders of real dumps are not here")


def diagnosed(name: str, where: Path, time: float | None) -> Diagnosis:
    if time is None:
        return api.diagnose(DATA / name)
    copied = Path(shutil.copytree(DATA / name, where / name, copy_function=shutil.copyfile))
    for file in copied.iterdir():
        os.utime(file, (time, time))
    return api.diagnose(copied)


def injected(name: str) -> tuple[int, ...]:
    """The ranks that a fault was put into: 'Fault ranks: [9, 14]'."""
    found = re.search(r"Fault ranks: \[([\d, ]+)\]", (DATA / name / "fault_injection.log").read_text())
    assert found
    return tuple(map(int, found[1].split(",")))


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize(("name", "named"), [("gpu_error_1st", {12}), ("lock_gil_1st", {9, 14})])
def test_a_folder_of_real_dumps_is_of_a_job_that_hung(tmp_path: Path, name: str, named: set[int], times: str) -> None:
    found = diagnosed(name, tmp_path, TIMES[times])
    assert (found.outcome, EXIT_STATUS[found.outcome]) == ("hang", 1)
    assert named <= set(found.culprits)
    assert found.confidence in ("possible", "likely")
    assert all(re.search(rf"\b{rank}\b", found.verdict) for rank in named)


@pytest.mark.parametrize("name", ["gpu_error_1st", "lock_gil_1st"])
def test_the_ranks_with_the_fault_are_named_and_no_others(name: str) -> None:
    assert diagnosed(name, Path(), None).culprits == injected(name)
