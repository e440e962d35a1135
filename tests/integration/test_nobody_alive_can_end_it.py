"""Waits that no living process can end: hangs, to an attach as well, with the path to look at. Their opposites are the
saved cases ``builder_holds_lock_attach`` and ``vocabulary_before_file_rendezvous_attach``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import DEADLINE, MARK

PROGRAMS = Path(__file__).parent / "programs"
STANDS_SECONDS = 4.0
"""Until no rank works any more, once all are about to wait."""


def attached(program: str, port: int, folder: Path, mark: str) -> dict[str, Any]:
    """What an attach says of the program once both of its ranks wait. Raises ``RuntimeError`` where they never do."""
    command = [sys.executable, str(PROGRAMS / program), str(port), str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (
        (folder / "output").open("wb") as output,
        subprocess.Popen(
            command, env={**environment, MARK: mark}, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        ) as job,
    ):
        try:
            deadline = time.monotonic() + DEADLINE
            while len([*folder.glob("*.waits")]) < 2:
                if job.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((folder / "output").read_text()[-3000:])
                time.sleep(0.2)
            time.sleep(STANDS_SECONDS)
            look = [sys.executable, "-m", "hangdoc", "attach", str(job.pid), "--json"]
            done = subprocess.run(look, env=environment, capture_output=True, text=True, timeout=DEADLINE, check=False)
        finally:
            job.kill()
    found: dict[str, Any] = json.loads(done.stdout)
    if sorted(rank["rank"] for rank in found["ranks"]) != [0, 1]:
        raise RuntimeError(done.stdout)
    return found


def code(found: dict[str, Any]) -> str | None:
    return found["cause"] and found["cause"]["code"]


NOT_YET = pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="no capture looks at the file that a rank polls: its age, and who holds it",
)


@NOT_YET
def test_a_build_lock_that_its_builder_has_left_behind(free_port: int, tmp_path: Path, mark: str) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    os.utime(lock, (time.time() - 3 * 3600,) * 2)
    found = attached("stale_lock.py", free_port, tmp_path, mark)
    assert (found["outcome"], code(found)) == ("hang", "HD504")
    assert str(lock) in f"{found['verdict']} {found['why']}"
    assert str(lock) in found["fix"]
    assert "3 h" in f"{found['verdict']} {found['why']}"


@NOT_YET
def test_a_rendezvous_file_that_another_rank_has_removed(free_port: int, tmp_path: Path, mark: str) -> None:
    (tmp_path / "run").mkdir()
    found = attached("removed_rendezvous.py", free_port, tmp_path, mark)
    assert (found["outcome"], found["culprits"]) == ("hang", [0])
    assert code(found) in ("HD302", "HD305")
    assert str(tmp_path / "run" / "rendezvous") in f"{found['verdict']} {found['why']} {found['fix']}"
