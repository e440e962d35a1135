"""Real hung jobs of every launcher, side by side on one machine, attached by each of their processes."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import MARK, end_all, least_seconds

from hangdoc import api
from hangdoc.capture.attach import find_job, list_jobs
from hangdoc.capture.read import procfs
from hangdoc.diagnosis import diagnose
from hangdoc.model import codec
from hangdoc.model.snapshot import JobSnapshot

PROGRAM = Path(__file__).parents[1] / "integration" / "programs" / "attached.py"
BARRIER, ALL_REDUCE = 28, 29
START_SECONDS = 250.0


@dataclass
class Running:
    """A job: its launcher, and where its ranks leave their marks."""

    folder: Path
    launcher: subprocess.Popen[bytes] | None = None
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def ranks(self) -> dict[int, int]:
        marks = [path.name.split(".") for path in self.folder.glob("?.*")]
        return {int(rank): int(pid) for rank, pid in marks}

    @property
    def pid(self) -> int:
        return self.launcher.pid if self.launcher is not None else self.ranks[0]


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
ACCELERATE = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--num_machines=1"]
ACCELERATE += ["--mixed_precision=no", "--dynamo_backend=no"]


def commands(folder: Path) -> Iterator[tuple[str, list[list[str]], dict[str, str]]]:
    """Per job its name, its commands and what to add to the environment."""
    python = sys.executable

    def program(name: str, how: str, *more: str) -> list[str]:
        return [str(PROGRAM), how, str(folder / name), *more]

    yield "torchrun", [[python, *TORCHRUN, *program("torchrun", "environment")]], {}
    yield "twin", [[python, *TORCHRUN, *program("twin", "environment")]], {}
    accelerate = [python, *ACCELERATE, f"--main_process_port={free_port()}"]
    yield "accelerate", [[*accelerate, *program("accelerate", "environment")]], {}
    for how in ("spawn", "fork", "forkserver"):
        yield how, [[python, *program(how, how, free_port())]], {}
    yield "fabric", [[python, *program("fabric", "fabric")]], {}
    by_hand = {"MASTER_ADDR": "localhost", "MASTER_PORT": free_port(), "WORLD_SIZE": "2"}
    yield "hand", [["env", f"RANK={rank}", python, *program("hand", "environment")] for rank in range(2)], by_hand
    yield "healthy", [[python, *TORCHRUN, *program("healthy", "healthy")]], {}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Running]]:
    folder = tmp_path_factory.mktemp("jobs")
    mark = f"attach-{os.getpid()}-{time.monotonic_ns()}"
    running: dict[str, Running] = {}
    try:
        for name, lines, more in commands(folder):
            job = running[name] = Running(folder / name)
            job.folder.mkdir()
            environment = {**os.environ, MARK: mark, "OMP_NUM_THREADS": "1", **more}
            with (folder / f"{name}.log").open("wb") as log:
                job.processes = [
                    subprocess.Popen(
                        line, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                    )
                    for line in lines
                ]
            if len(lines) == 1:
                job.launcher = job.processes[0]
        wait_for_marks(folder, running)
        yield running
    finally:
        end_all(mark)
        for job in running.values():
            for process in job.processes:
                process.wait(20)


def wait_for_marks(folder: Path, running: Mapping[str, Running]) -> None:
    """Until all ranks are about to hang and those that shall hang have not moved for a second."""
    deadline = time.monotonic() + START_SECONDS
    pulses: list[procfs.Pulse | None] = []
    since = time.monotonic()
    while time.monotonic() < deadline:
        for name, job in running.items():
            ended = [process.poll() for process in job.processes if process.poll() is not None]
            assert not ended, (folder / f"{name}.log").read_text()[-3000:]
        if all(len(job.ranks) == 2 for job in running.values()):
            hung = [pid for name, job in running.items() if name != "healthy" for pid in job.ranks.values()]
            now = [procfs.pulse(pid) for pid in hung]
            if now != pulses:
                pulses, since = now, time.monotonic()
            elif time.monotonic() - since > 1:
                return
        time.sleep(0.1)
    raise AssertionError({name: job.ranks for name, job in running.items()})


LAUNCHERS = {
    "torchrun": "torchrun",
    "twin": "torchrun",
    "accelerate": "accelerate",
    "spawn": "spawn",
    "fork": "multiprocessing",
    "forkserver": "multiprocessing",
    "fabric": "lightning",
    "hand": "environment",
}


def pids_of(snapshot: JobSnapshot) -> dict[int, int | None]:
    return {rank.rank: rank.process.pid if rank.process else None for rank in snapshot.ranks}


@pytest.mark.parametrize("name", [*LAUNCHERS, "healthy"])
def test_every_process_leads_to_its_job_alone(jobs: Mapping[str, Running], name: str) -> None:
    job = jobs[name]
    below = procfs.descendants(job.pid, procfs.table()) if job.launcher else []
    assert len(below) >= 2 or name == "hand"
    for pid in {*below, *job.ranks.values()}:
        _, found = find_job(pid)
        assert {target.rank: target.pid for target in found.targets} == job.ranks, pid
        assert found.launcher == LAUNCHERS.get(name, "torchrun")


@pytest.mark.parametrize("name", LAUNCHERS)
def test_the_verdict_names_the_rank_and_both_lines(jobs: Mapping[str, Running], name: str) -> None:
    began = time.monotonic()
    snapshot = api.snapshot(jobs[name].ranks[1])
    seconds = time.monotonic() - began
    assert pids_of(snapshot) == jobs[name].ranks
    diagnosis = diagnose(snapshot)
    assert diagnosis.outcome == "hang"
    assert diagnosis.culprits == (1,)
    assert diagnosis.cause is not None
    assert diagnosis.cause.code == "HD101"
    assert {activity.where.line for activity in diagnosis.ranks if activity.where} == {BARRIER, ALL_REDUCE}
    assert least_seconds(lambda: api.snapshot(jobs[name].ranks[1]), seconds, 8) < 8


def test_the_store_confirms_who_is_who(jobs: Mapping[str, Running]) -> None:
    for name in LAUNCHERS:
        snapshot = api.snapshot(jobs[name].ranks[0], no_source=True)
        assert snapshot.store is not None, name
        assert snapshot.store.joined == (0, 1)
        assert snapshot.store.groups[0].members == (0, 1)
        assert any("default_pg" in key for key in snapshot.store.keys)


def test_a_worker_of_the_loader_is_enough(jobs: Mapping[str, Running]) -> None:
    processes = procfs.table()
    ranks = jobs["torchrun"].ranks
    workers = [pid for pid in procfs.descendants(ranks[0], processes) if processes[pid].comm == "pt_data_worker"]
    assert workers
    assert pids_of(api.snapshot(workers[0])) == ranks


def test_a_thread_stands_for_its_process(jobs: Mapping[str, Running]) -> None:
    rank = jobs["torchrun"].ranks[1]
    threads = [int(name) for name in os.listdir(f"/proc/{rank}/task") if int(name) != rank]
    _, found = find_job(threads[0])
    assert {target.rank: target.pid for target in found.targets} == jobs["torchrun"].ranks


def test_a_healthy_job_is_healthy(jobs: Mapping[str, Running]) -> None:
    diagnosis = api.attach(jobs["healthy"].pid)
    assert diagnosis.outcome == "healthy"
    assert diagnosis.culprits == ()


def test_the_list_shows_them_all(jobs: Mapping[str, Running]) -> None:
    seen = {summary.pid: summary for summary in list_jobs()}
    for name, launcher in LAUNCHERS.items():
        summary = seen[jobs[name].pid]
        assert (summary.launcher, summary.ranks, summary.missing, summary.moving) == (launcher, (0, 1), (), 0)
    assert seen[jobs["healthy"].pid].moving > 0


def test_a_saved_snapshot_gives_the_same_verdict(jobs: Mapping[str, Running], tmp_path: Path) -> None:
    snapshot = api.snapshot(jobs["torchrun"].pid)
    codec.dump_snapshot(snapshot, tmp_path / "job.hangdoc")
    assert api.diagnose(tmp_path / "job.hangdoc") == diagnose(snapshot)


def test_nobody_was_harmed(jobs: Mapping[str, Running]) -> None:
    for job in jobs.values():
        for pid in job.ranks.values():
            state = procfs.look(pid)
            assert state is not None
            assert state.state in "SR"
            assert state.tracer_pid == 0


def test_the_shell_it_was_started_from_is_told_about_its_jobs(jobs: Mapping[str, Running]) -> None:
    from hangdoc.errors import CannotLook

    with pytest.raises(CannotLook, match="above hangdoc itself") as refusal:
        find_job(os.getppid())
    assert "attach" in refusal.value.remedy


needs_setpriv = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")


@needs_setpriv
def test_another_user_is_told_what_to_do(jobs: Mapping[str, Running]) -> None:
    line = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-m", "hangdoc", "attach"]
    environment = {**os.environ, "HOME": "/tmp"}
    pid = jobs["torchrun"].ranks[0]
    done = subprocess.run([*line, str(pid)], env=environment, cwd="/", capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    assert f"process {pid} " in done.stderr
    assert re.search(rf"sudo (/\S+/hangdoc|/\S+ -m hangdoc) attach {pid}$", done.stderr.strip()), done.stderr
