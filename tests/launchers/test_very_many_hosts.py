"""Enough hosts that digests are asked for: a real store, a real meeting, and hosts that are replayed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SIMULATION = Path(__file__).parents[1] / "benchmarks/hosts.py"


@pytest.mark.timeout(400)
def test_a_hang_on_ten_hosts_is_told_to_all() -> None:
    command = [sys.executable, str(SIMULATION), "--hosts", "10", "--ranks", "2", "--calls", "200", "--calm", "1"]
    done = subprocess.run([*command, "--processes", "1"], capture_output=True, text=True, timeout=200, check=True)
    row = json.loads(done.stderr.splitlines()[0])
    assert row["culprits"] == [19]
    assert row["ranks"] == 20
    assert row["verdict"].startswith("Rank 19 alone called barrier at train.py:99 train() (call #140")
    cells = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()]
    assert ["hosts that heard the verdict in 3 s", "9"] in cells
