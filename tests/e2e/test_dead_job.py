"""A real job under torchrun that dies of its hang: what it printed is enough to name the rank."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import time
from datetime import timedelta

import torch
import torch.distributed as dist


def average(loss):
    dist.all_reduce(loss)
    return loss / dist.get_world_size()


def export(step):
    for part in range(1000):
        print(f"step {step}: writing part {part} of 1000", flush=True)
        time.sleep(0.5)


dist.init_process_group("gloo", timeout=timedelta(seconds=6))
for step in range(12):
    print(f"step {step} loss {average(torch.ones(4))[0]:.3f}", flush=True)
    if step == 5 and dist.get_rank() == 2:
        export(step)
"""


@pytest.fixture(scope="module")
def dead(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job that has died of gloo's time-out: its console, and the logs of its ranks."""
    folder = tmp_path_factory.mktemp("dead")
    (folder / "train.py").write_text(PROGRAM)
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    command = [torchrun, "--standalone", "--nproc-per-node", "3", "--log-dir", "logs", "--redirects", "3", "train.py"]
    with (folder / "console.log").open("wb") as console:
        done = subprocess.run(command, cwd=folder, stdout=console, stderr=console, timeout=120, check=False)
    assert done.returncode == 1
    return folder


def _diagnosed(folder: Path, *paths: str, stdin: bytes | None = None) -> dict[str, object]:
    hangdoc = str(Path(sys.executable).with_name("hangdoc"))
    command = [hangdoc, "diagnose", "--json", *paths]
    done = subprocess.run(command, cwd=folder, input=stdin, capture_output=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    document: dict[str, object] = json.loads(done.stdout)
    return document


def test_the_rank_without_a_time_out_is_named_with_what_it_did(dead: Path) -> None:
    found = _diagnosed(dead, "logs", "console.log")
    assert (found["outcome"], found["culprits"], found["confidence"]) == ("hang", [2], "likely")
    assert "all_reduce at train.py:10" in str(found["verdict"])
    assert "writing part" in str(found["why"])
    hangdoc = str(Path(sys.executable).with_name("hangdoc"))
    text = subprocess.run(
        [hangdoc, "diagnose", "logs"], cwd=dead, capture_output=True, text=True, timeout=60, check=False
    )
    assert "10 │ dist.all_reduce(loss)" in text.stdout


def test_the_console_alone_is_no_more_than_possible(dead: Path) -> None:
    """Without the ranks' own logs it holds the launcher's words alone, whose first failure is a victim."""
    console = (dead / "console.log").read_bytes()
    found = _diagnosed(dead, "-", stdin=console)
    assert found["confidence"] == "possible"
    assert "may as well have given up a wait" in str(found["why"])


def test_a_collected_file_gives_the_same_verdict(dead: Path) -> None:
    hangdoc = str(Path(sys.executable).with_name("hangdoc"))
    command = [hangdoc, "collect", "logs", "console.log", "-o", "job.hangdoc"]
    done = subprocess.run(command, cwd=dead, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found = _diagnosed(dead, "job.hangdoc")
    assert (found["culprits"], found["confidence"]) == ([2], "likely")
