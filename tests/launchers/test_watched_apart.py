"""One job whose ranks were started by hand, each under a `hangdoc watch` of its own, on one host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import MARK

pytestmark = pytest.mark.timeout(400)
PROGRAM = Path(__file__).parents[1] / "integration" / "programs" / "parts.py"


def start(folder: Path, rank: int, port: int, mark: str, *options: str) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HANGDOC_")}
    environment |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    environment |= {"OMP_NUM_THREADS": "1", MARK: mark, "NO_COLOR": "1"}
    line = [sys.executable, "-m", "hangdoc", "watch", "--run-dir", str(folder / f"run{rank}"), *options, "--"]
    with (folder / f"log{rank}").open("wb") as log:
        return subprocess.Popen(
            [*line, sys.executable, str(PROGRAM)], env=environment, cwd=folder, stdin=subprocess.DEVNULL, stderr=log
        )


def test_each_watch_sees_both_sides_and_ends_only_its_own(tmp_path: Path, free_port: int, mark: str) -> None:
    reports = start(tmp_path, 1, free_port, mark, "--stall-after", "5", "--meet", "off")
    aborts = start(tmp_path, 0, free_port, mark, "--stall-after", "20", "--on-hang", "abort", "--meet", "off")
    statuses = aborts.wait(120), reports.wait(60)
    logs = "\n".join((tmp_path / f"log{rank}").read_text() for rank in (0, 1))
    # Rank 0 was ended as asked; rank 1 fell out of its barrier by itself when its peer was gone: no signal.
    assert statuses == (124, 1), logs
    for rank in (0, 1):
        found = json.loads((tmp_path / f"run{rank}" / "stall-1.json").read_text())
        assert (found["outcome"], found["culprits"]) == ("hang", [1]), logs
        assert found["cause"]["code"] == "HD106", logs
        # Of either side the history, and whose process it is.
        assert {each["rank"]: each["pid"] is not None for each in found["ranks"]} == {0: True, 1: True}
        assert "call sequences of both ranks seen" in (tmp_path / f"log{rank}").read_text()
        assert "rank 1 last wrote" not in logs  # what a watch says is no rank's word


def test_watches_of_one_host_share_one_capture(tmp_path: Path, free_port: int, mark: str) -> None:
    # Rank 0's watch leads: it speaks when all ranks stand still, and the other tells what it has found.
    tells = start(tmp_path, 1, free_port, mark, "--stall-after", "15", "--on-hang", "abort")
    leads = start(tmp_path, 0, free_port, mark, "--stall-after", "15", "--on-hang", "abort")
    statuses = leads.wait(120), tells.wait(60)
    logs = "\n".join((tmp_path / f"log{rank}").read_text() for rank in (0, 1))
    assert statuses[0] == 124, logs
    assert statuses[1] in (1, 124), logs  # it ended its rank, or the rank fell out of its barrier first
    found = json.loads((tmp_path / "run0" / "stall-1.json").read_text())
    assert (found["outcome"], found["culprits"]) == ("hang", [1]), logs
    assert not (tmp_path / "run1").exists(), logs
    for rank in (0, 1):
        log = (tmp_path / f"log{rank}").read_text()
        assert "Rank 1 calls barrier" in log, logs
        assert ("has the whole report" in log) == (rank == 1), logs
