"""hangdoc and a job under the other Pythons of this machine: one scenario under watch, the same attached.

What is seen of each is in the guide (versions.md).
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import MARK, Watch, end_all
from pythons import ROOT, CannotBeHadError, with_torch_and_hangdoc

pytestmark = pytest.mark.timeout(900)  # the first time torch is fetched
VERSIONS = ("3.10", "3.12", "3.13", "3.14")
"""The oldest first. 3.11 is in the rest of the suite."""
INSTALL_SECONDS = 300.0
"""For all of them together, where they have to be made: what is not there by then is skipped, and said."""
PROGRAM = ROOT / "scenarios" / "rank_guard.py"
JOB = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(PROGRAM)]


@pytest.fixture(scope="module")
def spent() -> list[float]:
    """Seconds that the installations took so far."""
    return []


@pytest.fixture(scope="module", params=VERSIONS)
def python(request: pytest.FixtureRequest, spent: list[float]) -> str:
    began = time.monotonic()
    try:
        return with_torch_and_hangdoc(request.param, seconds=INSTALL_SECONDS - sum(spent))
    except CannotBeHadError as error:
        pytest.skip(str(error))
    finally:
        spent.append(time.monotonic() - began)


@pytest.fixture
def job(python: str, mark: str, tmp_path: Path) -> Iterator[int]:
    """The scenario without a watch; its launcher's pid."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", MARK: mark}
    with (tmp_path / "output").open("wb") as output:
        process = subprocess.Popen([python, *JOB], env=environment, cwd=tmp_path, stdout=output, stderr=output)
        try:
            yield process.pid
        finally:
            end_all(mark)
            process.wait(20)


def assert_rank_0_alone_calls(document: dict[str, Any]) -> None:
    assert (document["outcome"], document["culprits"], document["cause"]["code"]) == ("hang", [0], "HD101")


def test_a_scenario_under_watch(python: str, watch: Watch) -> None:
    done = watch([python, *JOB], python=python)
    assert done.status == 124, done.explain()
    assert done.document is not None
    assert_rank_0_alone_calls(done.document)
    assert "#" in done.stderr, done.explain()  # the calls have numbers: the recorder's history was read
    told = [each["text"] for each in done.document["evidence"] if "as the probe recorded" in each["text"]]
    recorded = "`rank == 0` at rank_guard.py:39 was true, the one time that it was asked, on rank 0"
    assert any(text.startswith(recorded) for text in told) == ("python3.10" not in python)
    assert done.survivors == ()


def test_the_same_attached(python: str, job: int) -> None:
    deadline = time.monotonic() + 120
    document: dict[str, Any] = {}
    while document.get("outcome") != "hang":
        assert time.monotonic() < deadline, document
        time.sleep(2)
        line = [python, "-m", "hangdoc", "attach", "--json", str(job)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=100, check=False)
        document = json.loads(done.stdout) if done.stdout.strip().startswith("{") else {}
    assert_rank_0_alone_calls(document)
