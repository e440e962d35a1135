"""The watch beside real torchrun jobs on gloo."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from conftest import MARK, Watch, end_all, survivors
from own_launcher import by_hand
from terminal import DEADLINE, HANGDOC, Terminal, child_of, environment, kill, wait_until

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
JOB = """
import os, pathlib, sys, time
import torch, torch.distributed as dist
def say(what): # in one piece: torchrun's ranks are unbuffered, and write into one another's lines
    os.write(1, f"{{what}} {{rank}}\\n".encode())
rank, restart = int(os.environ["RANK"]), int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
{at_first}
dist.init_process_group("gloo")
tensor = torch.ones(8)
for step in range(40):
    dist.all_reduce(tensor)
    time.sleep(0.05)
    if step == 20:
        {at_twenty}
dist.destroy_process_group()
say("through")
"""


def job(tmp_path: Path, at_twenty: str = "pass", at_first: str = "") -> list[str]:
    script = tmp_path / "job.py"
    script.write_text(JOB.format(at_twenty=at_twenty, at_first=at_first))
    return [*TORCHRUN, str(script)]


def without_agent(tmp_path: Path, at_twenty: str) -> list[str]:
    """The same job without an agent, of which the test says nothing."""
    return by_hand(f"2:{job(tmp_path, at_twenty)[-1]}")


@pytest.mark.slow
def test_a_job_that_moves_again(watch: Watch, tmp_path: Path) -> None:
    done = watch(without_agent(tmp_path, "time.sleep(7 * rank)"), stall_after=3)
    assert done.status == 0, done.explain()
    assert done.stderr.count("hangdoc ◔ slow") == 1, done.explain()
    told = [line for line in done.stderr.splitlines() if "moves again after" in line]
    assert len(told) == 1, done.explain()
    assert 6 <= int(told[0].split()[-2]) <= 10, told
    assert "✖" not in done.stderr
    assert sorted(done.stdout.splitlines()) == ["job 0 0", "through 0", "through 1"]
    assert done.document is not None
    assert done.document["outcome"] == "slow"


@pytest.mark.slow
def test_a_job_that_torchrun_restarts_and_ends_well_is_healthy(watch: Watch, tmp_path: Path) -> None:
    # Before there is a group: torch 2.13 does not survive a restart afterwards, watched or not, because gloo
    # finds the addresses of the first try in the store.
    first = "if restart == 0: time.sleep(1 + 30 * (1 - rank)); assert rank == 0, 'first try'"
    command = job(tmp_path, at_first=first)
    command[3:3] = ["--max-restarts", "1"]
    done = watch(command)
    assert done.status == 0, done.explain()
    assert "first try" in done.stderr, "the first try really failed"
    assert "hangdoc: rank 1 has exited with status 1; torchrun restarted the workers, 1 of 1\n" in done.stderr
    assert "✖" not in done.stderr, done.explain()
    assert done.document is None
    assert not done.run_dir.exists(), "nothing is kept of a healthy job"


@pytest.mark.slow
def test_a_job_that_fails_by_itself_is_diagnosed_and_keeps_its_status(watch: Watch, tmp_path: Path) -> None:
    done = watch(job(tmp_path, "assert rank == 0, 'second rank'"))
    assert done.status == 1, done.explain()
    assert done.document is not None, done.explain()
    assert done.document["outcome"] == "crashed"
    assert done.document["culprits"] == [1], done.explain()
    assert "AssertionError" in done.stderr
    assert [path.name for path in done.snapshots()] == ["end.hangdoc"]


@pytest.mark.slow
def test_ctrl_c_of_a_training_job_is_no_failure(tmp_path: Path, mark: str) -> None:
    command = job(tmp_path, "say('under way'); time.sleep(60)")
    screen = Terminal([*HANGDOC, "watch", *command], environment(**{MARK: mark, "OMP_NUM_THREADS": "1"}), tmp_path)
    try:
        screen.read_until("under way 0", 60)
        screen.read_until("under way 1", 60)
        screen.type("\x03")
        status = screen.end(60)
        # As torchrun itself ends: it raises the signal it got, once, and had the time to say so.
        assert status == 1, screen.output
        assert screen.output.count("got signal: 2") == 1, screen.output
        assert "✖" not in screen.output
        assert not (tmp_path / ".hangdoc").exists()
        assert survivors(mark) == ()
    finally:
        screen.close()


@pytest.mark.slow
def test_ranks_run_to_their_end_when_the_watcher_is_killed(tmp_path: Path, mark: str) -> None:
    command = without_agent(tmp_path, "say('under way'); time.sleep(2)")
    output = tmp_path / "output"
    with output.open("wb") as file:
        watcher = subprocess.Popen(
            [*HANGDOC, "watch", *command],
            env=environment(**{MARK: mark, "OMP_NUM_THREADS": "1"}),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_until(lambda: "under way 0" in output.read_text(), 60, "the training")
        left_behind = Path(psutil.Process(child_of(watcher.pid)).environ()["HANGDOC_PROBE"])
        kill(watcher.pid)
        watcher.wait(DEADLINE)
        wait_until(lambda: output.read_text().count("through") == 2, 60, "the end of the training")
        assert survivors(mark, 30.0) == ()
        shutil.rmtree(left_behind, ignore_errors=True)  # another watch may have cleared it away
    finally:
        end_all(mark)
