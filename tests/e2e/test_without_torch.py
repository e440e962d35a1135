"""torch belongs to the job: every command but the scenarios works where torch cannot be imported, and does not try."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cases import case
from conftest import MARK
from terminal import DEADLINE, HANGDOC, environment

CASE = case("uneven_batches")
# Says who tried, also where the error is caught.
BLOCKED = """
import os, sys
with open(os.path.join(os.path.dirname(__file__), "tried"), "a") as file:
    print(sys.argv, file=file)
raise ImportError("torch is blocked")
"""
# A launcher and two ranks without torch, of which one asks a question that nobody can answer.
JOB = """
import os, subprocess, sys
if "RANK" not in os.environ:
    environments = [{**os.environ, "RANK": str(n), "WORLD_SIZE": "2", "LOCAL_RANK": str(n)} for n in range(2)]
    ranks = [subprocess.Popen([sys.executable, *sys.argv], env=e, stdin=subprocess.PIPE) for e in environments]
    sys.exit(max(rank.wait() for rank in ranks))
input("go on? ")
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def blocked(tmp_path: Path) -> Path:
    folder = tmp_path / "blocked"
    folder.mkdir()
    (folder / "torch.py").write_text(BLOCKED)
    return folder


@pytest.fixture
def run(blocked: Path, tmp_path: Path, mark: str) -> Run:
    """Run hangdoc where ``import torch`` fails."""

    def start(*arguments: object) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*HANGDOC, *map(str, arguments)],
            env=environment(PYTHONPATH=str(blocked), **{MARK: mark}),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * DEADLINE,
            check=False,
        )
        assert "Traceback" not in done.stderr.partition("watching pid")[0], done.stderr
        return done

    return start


def test_the_block_blocks(blocked: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import torch"],
        env=environment(PYTHONPATH=str(blocked)),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert "torch is blocked" in done.stderr
    assert (blocked / "tried").read_text() == "['-c']\n"


def test_watch(run: Run, blocked: Path) -> None:
    done = run("watch", sys.executable, "-c", "print('through'); raise SystemExit(7)")
    assert (done.returncode, done.stdout) == (7, "through\n"), done.stderr
    assert not (blocked / "tried").exists()


def test_watch_diagnoses_a_stall(run: Run, blocked: Path, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    done = run(
        "watch",
        "--stall-after",
        2,
        "--on-hang",
        "abort",
        "--report",
        "r.json",
        "--",
        sys.executable,
        tmp_path / "job.py",
    )
    assert done.returncode == 124, done.stderr
    assert json.loads((tmp_path / "r.json").read_text())["cause"]["code"] == "HD405", done.stderr
    assert not (blocked / "tried").exists()


def test_attach(run: Run, blocked: Path) -> None:
    assert run("attach").returncode == 0
    # Begun by a shell that ends: a child of this process would lead to whatever job other tests made of it.
    begun = subprocess.run(
        ["sh", "-c", "sleep 100 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True, check=True
    )
    stranger = int(begun.stdout)
    try:
        done = run("attach", stranger)
    finally:
        os.kill(stranger, signal.SIGKILL)
    assert done.returncode == 3
    assert "is not Python, and no job runs below it" in done.stderr
    assert not (blocked / "tried").exists()


def test_diagnose_and_explain(run: Run, blocked: Path) -> None:
    done = run("diagnose", CASE)
    assert done.returncode == 1
    assert "Rank 2 left the loop early" in done.stdout
    assert "DistributedSampler" in run("explain", "HD102").stdout
    assert run("collect", CASE, "-o", "job.hangdoc").returncode == 0
    assert "Rank 2 left the loop early" in run("diagnose", "job.hangdoc").stdout
    assert run("--help").returncode == 0
    assert not (blocked / "tried").exists()


def test_doctor(run: Run) -> None:
    # It asks the job's Python for torch, in a process of its own: here it has to say that there is none.
    done = run("doctor")
    assert done.returncode in (0, 1), done.stderr
    assert "torch" in done.stdout
    assert "Traceback" not in done.stderr
