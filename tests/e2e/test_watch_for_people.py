"""One hung job as people have it around them: colors, older runs, GitHub Actions, and a look at it before its end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from conftest import MARK, survivors

from hangdoc.sidecar.run_directory import RunDirectory

JOB = """
import os, time
import torch, torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
tensor = torch.ones(8)
for step in range(6):
    dist.all_reduce(tensor)
os.write(1, b"::warning::mine\\n")  # in one piece
if rank == 1:
    dist.barrier()
dist.all_reduce(tensor)
"""


def test_a_hang_is_shown_told_kept_and_looked_at_without_ending_it(tmp_path: Path, mark: str) -> None:
    runs = tmp_path / ".hangdoc"
    for number in range(3):
        old = RunDirectory(runs / f"20250101-00000{number}-1-abcdef")
        old.make()
        old.close()
    (tmp_path / "train.py").write_text(JOB)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HANGDOC_", "GITHUB_"))}
    github = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_WORKSPACE": str(tmp_path),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }
    options = ["--stall-after", "4s", "--keep", "2", "--color", "always", "-v"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    stdout, stderr = tmp_path / "stdout", tmp_path / "stderr"
    with stdout.open("wb") as out, stderr.open("wb") as err:
        watch = subprocess.Popen(
            [sys.executable, "-m", "hangdoc", "watch", *options, "--", *torchrun],
            env={**clean, **github, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", MARK: mark},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
    deadline = time.monotonic() + 120
    while "hangdoc: saved." not in stderr.read_text(errors="replace"):
        assert watch.poll() is None
        assert time.monotonic() < deadline, stderr.read_text(errors="replace")
        time.sleep(0.2)

    said = stderr.read_text(encoding="utf-8")
    assert "\x1b[1;31m✖ hang" in said, said  # a flag beats NO_COLOR
    assert "<module>  train.py:" in said  # -v: stacks
    assert "\x1b]8;" not in said  # no terminal, no links
    (annotation,) = re.findall(r"^::.*$", said, re.MULTILINE)
    assert re.match(
        r"::error file=train\.py,line=1[012],title=hangdoc HD101 collective-on-some-ranks::Rank ", annotation
    )
    assert (tmp_path / "summary.md").read_text(encoding="utf-8").startswith("### ✖ hang\n")
    left = sorted(path.name for path in runs.iterdir() if path.name.startswith("20"))
    assert left[0] == "20250101-000002-1-abcdef"
    assert len(left) == 2
    kept = {path.suffix: path for path in (runs / "latest").glob("stall-*")}
    assert kept.keys() == {".hangdoc", ".json", ".txt", ".html"}

    looked = subprocess.run(
        [sys.executable, "-m", "hangdoc", "attach", "--json", str(watch.pid)],
        env={**clean, MARK: mark},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert looked.returncode == 1, looked.stderr
    document = json.loads(looked.stdout)
    assert document["divergence"]["sides"][0]["sequence"] == 7  # after six all_reduce: only a history knows
    assert watch.poll() is None
    assert {rank["pid"] for rank in document["ranks"]} == {
        rank["pid"] for rank in json.loads(kept[".json"].read_text())["ranks"]
    }

    watch.send_signal(signal.SIGTERM)
    watch.wait(60)
    assert stdout.read_text() == "::warning::mine\n" * 2
    assert survivors(mark, patience=20) == ()
