"""Attach does no harm: hundreds of captures of a job in every phase change nothing of what it computes.

A stage of its own (minutes): ``pytest tests/stress``. Captures use everything attach may do, injection and native
frames included.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import MARK, end_all

from hangdoc.capture.attach import attach_job
from hangdoc.capture.read import procfs
from hangdoc.capture.request import CaptureOptions
from hangdoc.errors import CannotLook
from hangdoc.model.snapshot import JobSnapshot

pytestmark = pytest.mark.timeout(1500)

TRAINER = Path(__file__).with_name("trainer.py")
ATTACHES = 200
HELD_ATTACHES = 50
"""For a stopped rank, and as many for one in state D."""
PHASES = ("import", "rendezvous", "dataloader", "training", "checkpoint", "shutdown")
LONGER = 3.0
"""Seconds that a step may take longer than the longest of an undisturbed run, on a machine of two cores."""
GENTLE = CaptureOptions(gap=0.1, native=True)
FULL = CaptureOptions(gap=0.1, native=True, inject=True)


@dataclass
class Job:
    """A running job. ``attached``: captures by the phase that rank 1 was in; ``journals``: fetched by injection."""

    launcher: subprocess.Popen[bytes]
    folder: Path
    attached: Counter[str] = field(default_factory=Counter)
    journals: int = 0

    def phase(self, rank: int = 1) -> str:
        with contextlib.suppress(OSError):
            return (self.folder / f"{rank}.phase").read_text()
        return ""

    def attach(self, options: CaptureOptions) -> JobSnapshot | None:
        """One capture by the launcher's pid; None where there was no job yet or any more."""
        phase = self.phase()
        try:
            snapshot = attach_job(self.launcher.pid, options)
        except CannotLook:
            return None
        if not any(rank.process for rank in snapshot.ranks):
            return None
        self.attached[phase] += 1
        self.journals += sum(rank.journal is not None for rank in snapshot.ranks)
        return snapshot

    def result(self) -> dict[str, Any]:
        """What it computed, once it ended well."""
        status = self.launcher.wait(120)
        assert status == 0, (self.folder / "output").read_text()[-4000:]
        return {rank: json.loads((self.folder / f"{rank}.json").read_text()) for rank in (0, 1)}


@contextlib.contextmanager
def training(folder: Path, *arguments: str) -> Iterator[Job]:
    folder.mkdir()
    mark = f"no-harm-{os.getpid()}-{time.monotonic_ns()}"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(TRAINER)]
    with (folder / "output").open("wb") as output:
        launcher = subprocess.Popen(
            [*command, str(folder), *arguments],
            env={**os.environ, MARK: mark, "OMP_NUM_THREADS": "1"},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield Job(launcher, folder)
    finally:
        end_all(mark)
        launcher.wait(20)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with training(tmp_path_factory.mktemp("undisturbed") / "job") as job:
        return job.result()


def same(result: dict[str, Any], undisturbed: dict[str, Any], longer: float = LONGER) -> None:
    """Bit for bit the same numbers; no step much longer."""
    for rank in (0, 1):
        assert result[rank]["losses"] == undisturbed[rank]["losses"]
        assert result[rank]["weights"] == undisturbed[rank]["weights"]
        assert max(result[rank]["seconds"]) <= max(undisturbed[rank]["seconds"]) + longer


def held(job: Job) -> list[str]:
    """The job's processes that are stopped or traced."""
    found = []
    processes = procfs.table()
    for pid in procfs.descendants(job.launcher.pid, processes):
        state = procfs.look(pid)
        if state is not None and state.state not in "ZX" and (state.tracer_pid or procfs.is_stopped(pid)):
            by = procfs.argv(state.tracer_pid) if state.tracer_pid else ()
            found.append(f"{pid} {processes[pid].comm} {state.state} traced by {state.tracer_pid} {by}")
    return found


def no_tools_left() -> None:
    children = psutil.Process().children(recursive=True)
    assert [child.name() for child in children if child.name() in ("gdb", "pystack", "py-spy")] == []


def test_two_hundred_attaches_in_all_phases(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    attached: Counter[str] = Counter()
    journals = 0
    for number in range(60):
        with training(tmp_path / f"job{number}") as job:
            turn = 0
            while job.launcher.poll() is None:
                job.attach(FULL if turn % 2 else GENTLE)
                assert held(job) == []
                turn += 1
            same(job.result(), undisturbed)
            attached += job.attached
            journals += job.journals
        no_tools_left()
        if attached.total() >= ATTACHES and all(attached[phase] >= 3 for phase in PHASES):
            break
    print(f"\n{attached.total()} attaches to {number + 1} jobs: {dict(attached)}; {journals} journals by injection")
    assert attached.total() >= ATTACHES
    assert all(attached[phase] >= 3 for phase in PHASES)


def test_a_stopped_rank_stays_stopped_and_goes_on(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    with training(tmp_path / "job") as job:
        pid = _rank_one(job, "training")
        os.kill(pid, signal.SIGSTOP)
        _until(lambda: procfs.is_stopped(pid))
        for turn in range(HELD_ATTACHES):
            snapshot = job.attach(FULL if turn % 2 else GENTLE)
            assert snapshot is not None
            assert snapshot.ranks[1].journal is None
            state = procfs.look(pid)
            assert state is not None
            assert (state.state, state.tracer_pid) == ("T", 0)
            assert len(held(job)) == 1
        os.kill(pid, signal.SIGCONT)
        same(job.result(), undisturbed, longer=300)
    no_tools_left()


def test_a_rank_in_state_d_goes_on(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with training(tmp_path / "job", str(fifo)) as job:
        try:
            pid = _rank_one(job, "uninterruptible")
            _until(lambda: _state(pid) == "D")
            for turn in range(HELD_ATTACHES):
                snapshot = job.attach(FULL if turn % 2 else GENTLE)
                assert snapshot is not None
                assert snapshot.ranks[1].journal is None
                assert _state(pid) == "D"
                assert held(job) == []
        finally:
            os.close(os.open(fifo, os.O_RDWR | os.O_NONBLOCK))  # lets the child go on
        same(job.result(), undisturbed, longer=300)
    no_tools_left()


def _rank_one(job: Job, phase: str) -> int:
    """The pid of rank 1 once it is in that phase."""
    _until(lambda: job.phase() == phase, 60)
    processes = procfs.table()
    pids = procfs.descendants(job.launcher.pid, processes)
    return next(pid for pid in pids if (procfs.environment(pid) or {}).get("RANK") == "1")


def _state(pid: int) -> str:
    found = procfs.stat(pid)
    return found.state if found is not None else "gone"


def _until(holds: Any, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)
