"""What a watch does after the report of a hang: a command of the user's, and a restart by torchrun."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Watch

# Two tries hang at step 20: rank 1 makes one barrier too many. The second ends by itself, the third does nothing.
JOB = """
import os, sys, threading, time
rank, restart = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if restart == 2:
    os.write(1, f"through {rank}\\n".encode())
    sys.exit()
import torch, torch.distributed as dist
def validate():
    if rank == 1:
        if restart == 1:
            threading.Timer(20.0, os._exit, (3,)).start()
        dist.barrier()
dist.init_process_group("gloo")
tensor = torch.ones(8)
for step in range(40):
    dist.all_reduce(tensor)
    time.sleep(0.02)
    if step == 20:
        validate()
"""
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.mark.slow
def test_a_restart_ends_one_rank_once_for_each_verdict_and_the_command_hears_of_every_hang(
    watch: Watch, tmp_path: Path
) -> None:
    script = tmp_path / "job.py"
    script.write_text(JOB)
    heard = tmp_path / "heard"
    heard.mkdir()
    command = f"echo told; echo $HANGDOC_CULPRITS $HANGDOC_CAUSE $HANGDOC_PID; cat > {heard}/$HANGDOC_PID; exit 3"
    done = watch(
        [*TORCHRUN, "--max-restarts", "2", str(script)],
        *("--on-hang-exec", command),
        stall_after=4,
        on_hang="restart",
        # Without it, gloo finds the addresses of the first try in the store (torch 2.13), watched or not.
        env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        deadline=150,
    )
    assert done.status == 0, done.explain()
    assert done.stderr.count("✖ hang") == 2, done.explain()
    assert done.stderr.count("hangdoc: ended rank 1 (pid ") == 1, done.explain()
    assert done.stderr.count("hangdoc: the launcher has started new ranks") == 1, done.explain()
    assert done.stderr.count("no restart, although --on-hang restart asks: an equal verdict") == 1, done.explain()
    assert "crashed" not in done.stderr, done.explain()
    assert sorted(done.stdout.split()) == ["0", "1", "through", "through"]
    documents = [json.loads(path.read_text()) for path in heard.iterdir()]
    assert [(each["outcome"], each["culprits"]) for each in documents] == [("hang", [1])] * 2
    assert {str(each["culprit_processes"][0]["pid"]) for each in documents} == {path.name for path in heard.iterdir()}
    assert done.stderr.count("told\n1 HD101 ") == 2, done.explain()
    assert done.stderr.count("hangdoc: --on-hang-exec: the command failed with exit status 3") == 2
    assert done.survivors == ()


def test_a_restart_that_cannot_be_is_refused_before_the_launch(tmp_path: Path) -> None:
    made = tmp_path / "made"
    line = [sys.executable, "-m", "hangdoc", "watch", "--on-hang", "restart", "--"]
    for command in (
        [*TORCHRUN, str(tmp_path / "job.py")],
        [sys.executable, "-c", f"open({str(made)!r}, 'w')"],
    ):
        done = subprocess.run([*line, *command], capture_output=True, text=True, timeout=60, cwd=tmp_path)
        assert done.returncode == 125, done.stderr
        assert done.stderr.startswith("hangdoc: --on-hang restart: "), done.stderr
        assert "--max-restarts N" in done.stderr
    assert not made.exists()
