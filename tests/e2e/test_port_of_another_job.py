"""A job whose port another process already has: rank 0 cannot listen there, and rank 1 waits at the other's store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
from conftest import MARK, marked

from hangdoc import api
from hangdoc.capture.attach import attach_job

PROGRAMS = Path(__file__).parents[1] / "integration" / "programs"
RANKS = """
RANK=0 "$PYTHON" "$PROGRAM" &
RANK=1 "$PYTHON" "$PROGRAM" &
wait
"""


def test_the_other_process_is_named(tmp_path: Path, free_port: int, mark: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HANGDOC_")}
    environment |= {"OMP_NUM_THREADS": "1", "NO_COLOR": "1", MARK: mark}
    other = subprocess.Popen(
        [sys.executable, str(PROGRAMS / "holds_port.py")],
        env={**environment, "HELD_PORT": str(free_port)},
        stdout=subprocess.PIPE,
    )
    assert other.stdout is not None
    assert other.stdout.readline() == b"ready\n"
    (tmp_path / "ranks.sh").write_text(RANKS)
    job = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port)}
    job |= {"PYTHON": sys.executable, "PROGRAM": str(PROGRAMS / "meets.py")}
    line = [sys.executable, "-m", "hangdoc", "watch", "--stall-after", "5", "--run-dir", str(tmp_path / "run"), "--"]
    with (tmp_path / "log").open("wb") as log:
        subprocess.Popen(
            [*line, "sh", str(tmp_path / "ranks.sh")], env={**environment, **job}, stdin=subprocess.DEVNULL, stderr=log
        )
    report = tmp_path / "run" / "stall-1.json"
    until = time.monotonic() + 200
    while not report.exists() and time.monotonic() < until:
        time.sleep(0.2)
    found = json.loads(report.read_text())
    log_text = (tmp_path / "log").read_text()
    assert (found["outcome"], found["cause"]["code"], found["confidence"]) == ("hang", "HD302", "certain"), log_text
    (culprit,) = found["culprit_processes"]
    assert (culprit["pid"], culprit["role"], culprit["rank"]) == (other.pid, "foreign-job", None)
    assert "rank 1 waits at its store" in " ".join(found["verdict"].split())
    # Nobody saw rank 0 end, and the store of the others says nothing about where it is.
    diagnosis = api.diagnose(attach_job(rank_one(mark)))
    assert [process.pid for process in diagnosis.culprit_processes] == [other.pid]
    assert diagnosis.cause is not None
    assert diagnosis.cause.code == "HD302"
    assert diagnosis.unseen == ()
    assert other.poll() is None


def rank_one(mark: str) -> int:
    def is_rank(process: psutil.Process) -> bool:
        return process.environ().get("RANK") == "1" and "meets.py" in " ".join(process.cmdline())

    return next(process.pid for process in marked(mark) if is_rank(process))
