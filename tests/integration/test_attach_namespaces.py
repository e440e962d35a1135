"""A job in a pid namespace of its own, as in a container: attached from outside and from inside."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import MARK, end_all
from standing_still import wait_until_still

from hangdoc import api
from hangdoc.capture.read import procfs
from hangdoc.errors import CannotLook

pytestmark = [
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("nsenter"),
        reason="needs root, unshare and nsenter",
    ),
]
PROGRAM = Path(__file__).parent / "programs" / "attached.py"


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, dict[int, int]]]:
    """The pid of the container's first process as seen outside, and pids by rank as seen inside."""
    marks = tmp_path_factory.mktemp("marks")
    mark = f"namespace-{os.getpid()}-{time.monotonic_ns()}"
    environment = {**os.environ, MARK: mark, "OMP_NUM_THREADS": "1"}
    line = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable]
    line += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(PROGRAM), "environment"]
    null = subprocess.DEVNULL
    process = subprocess.Popen([*line, str(marks)], env=environment, stdin=null, stdout=null, stderr=null)
    try:
        deadline = time.monotonic() + 200
        while len(found := list(marks.iterdir())) < 2:
            if process.poll() is not None:
                pytest.skip("no pid namespaces here")
            assert time.monotonic() < deadline
            time.sleep(0.1)
        wait_until_still(procfs.descendants(process.pid, procfs.table()))
        (first,) = procfs.children(process.pid)
        yield first, {int(path.name.split(".")[0]): int(path.name.split(".")[1]) for path in found}
    finally:
        end_all(mark)
        process.wait(20)


def test_from_outside(container: tuple[int, dict[int, int]]) -> None:
    first, inside = container
    processes = procfs.table()
    pids = [pid for pid in procfs.descendants(first, processes) if procfs.namespace_pid(pid, pid) in inside.values()]
    assert len(pids) == 2
    for pid in (first, *pids):
        snapshot = api.snapshot(pid)
        assert {rank.process.pid for rank in snapshot.ranks if rank.process} == set(pids)
        diagnosis = api.diagnose(snapshot)
        assert (diagnosis.outcome, diagnosis.culprits) == ("hang", (1,))


def test_from_inside(container: tuple[int, dict[int, int]]) -> None:
    first, inside = container
    enter = ["nsenter", f"--target={first}", "--pid", "--mount", sys.executable, "-m", "hangdoc", "attach"]
    for pid in (1, inside[0]):  # torchrun is the first process there
        done = subprocess.run([*enter, "--json", str(pid)], cwd="/", capture_output=True, text=True, timeout=60)
        assert done.returncode == 1, done.stderr
        assert json.loads(done.stdout)["culprits"] == [1]
    done = subprocess.run([*enter, "4000000"], cwd="/", capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    assert "another pid namespace" in done.stderr


def test_a_pid_of_the_inside_is_none_outside(container: tuple[int, dict[int, int]]) -> None:
    free = next(pid for pid in range(4_000_000, 4_100_000) if not Path(f"/proc/{pid}").exists())
    with pytest.raises(CannotLook, match=f"no process {free}"):
        api.snapshot(free)
