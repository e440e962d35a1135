"""Hung jobs of launchers that are not from PyPI or are too large for the first stage: Open MPI, Slurm, Ray.

Each is attached by its launcher, a rank and a child of a rank. Where one is not installed its tests say so and skip.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import MARK, end_all

from hangdoc import api
from hangdoc.capture.attach import find_job, list_jobs
from hangdoc.capture.read import procfs
from hangdoc.errors import HangdocError

sys.path.insert(0, str(Path(__file__).parent))
import slurm

pytestmark = pytest.mark.timeout(400)

HERE = Path(__file__).parent
PROGRAM = HERE.parent / "integration" / "programs" / "attached.py"
WITH_RAY = HERE / "programs" / "with_ray.py"
WITH_RAY_TRAIN = HERE / "programs" / "with_ray_train.py"
START_SECONDS = 120.0


@dataclass
class Running:
    """A hung job. ``launcher``: the pid that a person would know; ``name``: what the list calls it."""

    name: str
    launcher: int
    ranks: dict[int, int]
    program: Path

    @property
    def lines(self) -> set[int]:
        source = self.program.read_text().splitlines()
        calls = ("dist.barrier()", "dist.all_reduce(torch.ones(4))")
        return {number for number, line in enumerate(source, start=1) if line.strip() in calls}


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def mpirun(folder: Path, environment: dict[str, str]) -> tuple[list[str], Path]:
    program = shutil.which("mpirun")
    if program is None:
        pytest.skip("no mpirun: apt-get install openmpi-bin")
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    line = [program, "--allow-run-as-root", "--oversubscribe", "-np", "2"]
    return [*line, sys.executable, str(PROGRAM), "environment", str(folder)], PROGRAM


def srun(folder: Path, environment: dict[str, str]) -> tuple[list[str], Path]:
    if why := slurm.missing():
        pytest.skip(why)
    environment |= slurm.start(folder.parent / "slurm", environment)
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    return ["srun", "-n", "2", sys.executable, str(PROGRAM), "environment", str(folder)], PROGRAM


def ray(folder: Path, environment: dict[str, str]) -> tuple[list[str], Path]:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("no ray: pip install ray")
    return [sys.executable, str(WITH_RAY), str(folder), free_port()], WITH_RAY


def ray_train(folder: Path, environment: dict[str, str]) -> tuple[list[str], Path]:
    for name in ("ray", "pyarrow", "pandas"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"no {name}: pip install 'ray[train]'")
    return [sys.executable, str(WITH_RAY_TRAIN), str(folder)], WITH_RAY_TRAIN


STARTERS: dict[str, Callable[[Path, dict[str, str]], tuple[list[str], Path]]] = {
    "mpirun": mpirun,
    "slurm": srun,
    "ray": ray,
    "ray train": ray_train,
}


@pytest.fixture(scope="module", params=STARTERS)
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    name = str(request.param)
    folder = tmp_path_factory.mktemp(name) / "marks"
    folder.mkdir()
    mark = f"{name}-{os.getpid()}-{time.monotonic_ns()}"
    environment = {**os.environ, MARK: mark, "OMP_NUM_THREADS": "1"}
    log = folder.parent / "log"
    launcher = None
    daemons: set[int] = set()
    try:
        line, program = STARTERS[name](folder, environment)
        with log.open("wb") as output:
            launcher = subprocess.Popen(
                line, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        ranks = wait_for_ranks(folder, launcher, log)
        daemons |= {entry.ppid for pid in ranks.values() if (entry := procfs.stat(pid)) is not None}
        yield Running(name.partition(" ")[0], launcher.pid, ranks, program)
    finally:
        end_all(mark)
        # Slurm's step daemon does not carry the mark of those it starts.
        for pid in daemons:
            if (entry := procfs.stat(pid)) is not None and entry.comm == "slurmstepd":
                os.kill(pid, signal.SIGKILL)
        if launcher is not None:
            launcher.wait(20)


def wait_for_ranks(folder: Path, launcher: subprocess.Popen[bytes], log: Path) -> dict[int, int]:
    """Until both ranks are about to hang and have used no CPU time worth the name for two seconds."""
    deadline = time.monotonic() + START_SECONDS
    used: dict[int, float] = {}
    since = time.monotonic()
    while time.monotonic() < deadline:
        assert launcher.poll() is None, log.read_text()[-3000:]
        ranks = {int(path.name.split(".")[0]): int(path.name.split(".")[1]) for path in folder.iterdir()}
        now = {pid: pulse.cpu for pid in ranks.values() if (pulse := procfs.pulse(pid)) is not None}
        if len(ranks) < 2 or any(cpu - used.get(pid, 0.0) > 0.05 for pid, cpu in now.items()):
            used, since = now, time.monotonic()
        elif time.monotonic() - since > 2:
            return ranks
        time.sleep(0.1)
    raise AssertionError(log.read_text()[-3000:])


def ways(job: Running) -> dict[str, int]:
    """The pids that a person may know: launcher, ranks, a worker of a rank."""
    processes = procfs.table()
    below = [pid for rank in job.ranks.values() for pid in procfs.descendants(rank, processes)[1:]]
    workers = [pid for pid in below if processes[pid].comm == "pt_data_worker"]
    found = {"launcher": job.launcher, "rank 0": job.ranks[0], "rank 1": job.ranks[1]}
    return {**found, "worker": workers[0]} if workers else found


def test_any_process_leads_to_the_ranks(job: Running) -> None:
    pids = ways(job)
    assert "worker" in pids or job.name == "ray"
    for way, pid in pids.items():
        _, found = find_job(pid)
        assert {target.rank: target.pid for target in found.targets} == job.ranks, way
        assert found.launcher == job.name


def test_the_verdict(job: Running) -> None:
    diagnosis = api.attach(job.launcher)
    assert (diagnosis.outcome, diagnosis.culprits) == ("hang", (1,))
    assert diagnosis.cause is not None
    assert diagnosis.cause.code == "HD101"
    assert {activity.where.line for activity in diagnosis.ranks if activity.where} == job.lines


def test_the_list(job: Running) -> None:
    def ranks_of(pid: int) -> set[int]:
        with contextlib.suppress(HangdocError):  # another test's job, which has ended meanwhile
            return {*find_job(pid)[1].pids}
        return set()

    (summary,) = [summary for summary in list_jobs() if ranks_of(summary.pid) == {*job.ranks.values()}]
    assert (summary.launcher, summary.ranks, summary.moving) == (job.name, (0, 1), 0)


def test_slurm_reaches_the_ranks_by_the_number_of_their_job(job: Running) -> None:
    if job.name != "slurm":
        pytest.skip("the others have no such number")
    entries = Path(f"/proc/{job.ranks[0]}/environ").read_bytes().decode().split("\0")
    variables = dict(entry.partition("=")[::2] for entry in entries)
    environment = {**os.environ, "SLURM_CONF": variables["SLURM_CONF"]}
    number, step = variables["SLURM_JOB_ID"], variables["SLURM_STEP_ID"]
    for name in (number, f"{number}.{step}"):
        line = [sys.executable, "-m", "hangdoc", "attach", "--slurm", name, "--json"]
        done = subprocess.run(line, env=environment, capture_output=True, timeout=90, check=False)
        assert done.returncode == 1, done.stderr
        document = json.loads(done.stdout)
        assert (document["outcome"], document["culprits"]) == ("hang", [1])
        assert {rank["rank"]: rank["pid"] for rank in document["ranks"]} == job.ranks
    line = [sys.executable, "-m", "hangdoc", "attach", "--slurm", "99999"]
    done = subprocess.run(line, env=environment, capture_output=True, timeout=90, check=False)
    assert done.returncode == 3
    assert b"squeue --me" in done.stderr


def test_slurm_runs_a_job_again_that_hung(tmp_path: Path, mark: str) -> None:
    if why := slurm.missing() or ("" if shutil.which("sbatch") else "no sbatch: apt-get install slurm-client"):
        pytest.skip(why)
    guide = (HERE.parents[1] / "hangdoc" / "guide" / "slurm.md").read_text()
    line = next(line.strip() for line in guide.splitlines() if 'scontrol requeue "$SLURM_JOB_ID"' in line)
    hangdoc = f"{sys.executable} -m hangdoc watch --stall-after 10"
    program = HERE / "programs" / "requeued.py"
    line = line.replace("hangdoc watch", hangdoc).replace("python train.py", f"{sys.executable} {program}")
    script, output = tmp_path / "train.sh", tmp_path / "output"
    script.write_text(f"#!/bin/bash\n#SBATCH --requeue\n{line}\n")
    environment = {**os.environ, MARK: mark, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    try:
        environment |= slurm.start(tmp_path / "slurm", environment)
        submit = ["sbatch", "-n", "2", "--open-mode=append", f"--output={output}", f"--chdir={tmp_path}", str(script)]
        subprocess.run(submit, env=environment, check=True, capture_output=True, timeout=60)
        deadline = time.monotonic() + START_SECONDS + 60
        while "rank 1 is through" not in (said := output.read_text() if output.exists() else ""):
            show = ["scontrol", "show", "job"]
            queue = subprocess.run(show, env=environment, capture_output=True, text=True, timeout=60).stdout
            if "Reason=BeginTime" in queue:  # Slurm lets a job that it runs again wait for two minutes
                update = ["scontrol", "update", "JobId=1", "StartTime=now"]
                subprocess.run(update, env=environment, capture_output=True, timeout=60)
            if time.monotonic() > deadline:
                pytest.fail(f"{said}\n{queue}")
            time.sleep(1)
        assert "Rank 1 alone calls barrier at requeued.py:11 evaluate()" in said
    finally:
        end_all(mark)


def test_a_program_that_starts_ray_is_watched(tmp_path: Path, mark: str) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("no ray: pip install ray")
    line = [sys.executable, "-m", "hangdoc", "watch", "--stall-after", "6", "--on-hang", "abort", "--"]
    line += [sys.executable, str(WITH_RAY), str(tmp_path), free_port()]
    environment = {**os.environ, MARK: mark, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    done = subprocess.run(line, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 124, done.stderr
    assert "Rank 1 alone calls barrier at with_ray.py:28 run(); rank 0 waits in all_reduce" in " ".join(
        done.stderr.split()
    )
