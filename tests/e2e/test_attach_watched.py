"""``hangdoc attach`` to a job that a watch looks after: its probes are asked, also where stacks are forbidden."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import MARK, end_all
from standing_still import wait_until_still

PROGRAM = Path(__file__).parents[1] / "integration" / "programs" / "attached.py"


@dataclass
class Watched:
    watch: subprocess.Popen[bytes]
    ranks: dict[int, int]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    marks = folder / "marks"
    marks.mkdir()
    mark = f"watched-{os.getpid()}-{time.monotonic_ns()}"
    environment = {**os.environ, MARK: mark, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}
    line = [sys.executable, "-m", "hangdoc", "watch", "--stall-after", "600", "--run-dir", str(folder / "run"), "--"]
    line += [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    line += [str(PROGRAM), "environment", str(marks)]
    null = subprocess.DEVNULL
    watch = subprocess.Popen(line, env=environment, cwd=folder, stdin=null, stdout=null, stderr=null)
    try:
        deadline = time.monotonic() + 200
        while len(found := list(marks.iterdir())) < 2:
            assert watch.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        ranks = {int(path.name.split(".")[0]): int(path.name.split(".")[1]) for path in found}
        wait_until_still(ranks.values())
        yield Watched(watch, ranks)
        assert watch.poll() is None
    finally:
        end_all(mark)
        watch.wait(20)


def attach(pid: int, *before: str) -> dict[str, Any]:
    line = [*before, sys.executable, "-m", "hangdoc", "attach", "--json", str(pid)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HANGDOC_")}
    done = subprocess.run(line, env=environment, cwd="/", capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def missing(document: dict[str, Any]) -> set[str]:
    return {str(item["what"]) for item in document["unavailable"]}


@pytest.mark.parametrize("way", ["rank", "watch"])
def test_the_probes_are_asked(job: Watched, way: str) -> None:
    document = attach(job.ranks[0] if way == "rank" else job.watch.pid)
    assert (document["outcome"], document["culprits"]) == ("hang", [1])
    assert missing(document) == set()
    assert document["divergence"]["sides"][0]["sequence"] == 4  # after three all_reduce: only a history knows


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
def test_without_the_capability_to_trace_the_probes_still_tell(job: Watched) -> None:
    document = attach(job.ranks[1], "setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace")
    assert (document["outcome"], document["culprits"]) == ("hang", [1])
    assert missing(document) <= {"stack", "sockets", "process", "native"}
    assert any("SYS_PTRACE" in item["remedy"] for item in document["unavailable"])


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
def test_a_stopped_rank_is_seen_by_anybody(job: Watched) -> None:
    os.kill(job.ranks[0], signal.SIGSTOP)
    try:
        document = attach(job.ranks[0], "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    finally:
        os.kill(job.ranks[0], signal.SIGCONT)
    assert (document["outcome"], document["culprits"]) == ("hang", [0])
    assert document["cause"]["code"] == "HD403"
    assert "sockets" in missing(document)
