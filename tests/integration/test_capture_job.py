"""Capture of a real torchrun job: rank 1 waits for a DataLoader worker that is stuck, rank 0 for rank 1's gradients."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import MARK, end_all, least_seconds

import hangdoc.probe
from hangdoc.capture import host
from hangdoc.capture.find import ranks
from hangdoc.capture.find.target import RankTarget
from hangdoc.capture.read import procfs
from hangdoc.capture.request import CaptureRequest
from hangdoc.model import codec
from hangdoc.model.frames import user_frames
from hangdoc.model.process import Process
from hangdoc.model.snapshot import JobSnapshot

PROGRAM = """\
import time, torch, torch.distributed as dist

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index >= 4 and dist.get_rank() == 1:
            time.sleep(3000)
        return torch.ones(2) * index

def train(rank):
    for step, batch in enumerate(torch.utils.data.DataLoader(Data(), num_workers=1)):
        dist.all_reduce(batch)
        print("step", step, flush=True)

dist.init_process_group("gloo")
train(dist.get_rank())
"""


@dataclass
class Job:
    snapshot: JobSnapshot
    targets: list[RankTarget]
    seconds: float
    launcher: int


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    folder = tmp_path_factory.mktemp("job")
    script = folder / "train.py"
    script.write_text(PROGRAM)
    mark = f"capture-{os.getpid()}-{time.monotonic_ns()}"
    with tempfile.TemporaryDirectory(prefix="hd-") as sockets:
        command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        command += ["--redirects=3", f"--log-dir={folder}/logs", str(script)]
        environment = {
            **os.environ,
            MARK: mark,
            "OMP_NUM_THREADS": "1",
            "HANGDOC_PROBE": sockets,
            "PYTHONPATH": str(Path(*hangdoc.probe.__path__)),
        }
        launcher = subprocess.Popen(
            [sys.executable, *command],
            env=environment,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            targets = _stuck(launcher, Path(sockets))
            began = time.monotonic()
            snapshot = host.capture_job(CaptureRequest(targets, launcher.pid))
            yield Job(snapshot, targets, time.monotonic() - began, launcher.pid)
        finally:
            end_all(mark)
            launcher.wait(20)


def _stuck(launcher: subprocess.Popen[bytes], sockets: Path) -> list[RankTarget]:
    """Wait until rank 1's worker sleeps and neither rank has moved for a second."""
    deadline = time.monotonic() + 200
    pulses: list[procfs.Pulse | None] = []
    since = time.monotonic()
    while time.monotonic() < deadline:
        assert launcher.poll() is None
        targets = ranks.find_ranks(launcher.pid, sockets)
        now = [procfs.pulse(target.pid) for target in targets if target.pid is not None]
        if now != pulses:
            pulses, since = now, time.monotonic()
        stuck = [target.identity for target in targets] == ["probe", "probe"] and _sleeping_worker(targets[1].pid)
        if stuck and time.monotonic() - since > 1:
            return targets
        time.sleep(0.2)
    raise AssertionError("the job never got stuck")


def _sleeping_worker(pid: int | None) -> bool:
    processes = procfs.table()
    for worker in procfs.descendants(pid or 0, processes):
        state = procfs.look(worker) if processes[worker].comm == "pt_data_worker" else None
        if state is not None and state.main is not None and "nanosleep" in (state.main.wchan or ""):
            return True
    return False


def process_of(job: Job, rank: int) -> Process:
    process = job.snapshot.ranks[rank].process
    assert process is not None
    return process


def test_ranks_launcher_and_identity(job: Job) -> None:
    assert [(rank.rank, rank.identity, rank.world_size) for rank in job.snapshot.ranks] == [
        (0, "probe", 2),
        (1, "probe", 2),
    ]
    assert job.snapshot.launcher is not None
    assert job.snapshot.launcher.pid == job.launcher
    assert job.snapshot.launcher.role == "launcher"
    assert dict(job.snapshot.ranks[1].environment)["RANK"] == "1"
    assert [item for item in job.snapshot.unavailable if item.what != "source"] == []


def test_it_is_quick(job: Job) -> None:
    again = CaptureRequest(job.targets, job.launcher)
    # A second between the looks; the rest is headroom for a busy machine.
    assert least_seconds(lambda: host.capture_job(again), job.seconds, 4) < 4


def test_stacks_and_their_locals(job: Job) -> None:
    for rank, line in ((0, 14), (1, 13)):
        for look in process_of(job, rank).looks:
            assert look.main is not None
            frame = next(iter(user_frames(look.main.frames)), None)
            assert frame is not None
            assert (Path(frame.file).name, frame.line, frame.function) == ("train.py", line, "train")
            assert {local.name: local.value for local in frame.locals}["rank"] == str(rank)


def test_the_stuck_worker_is_a_child_with_its_own_stack(job: Job) -> None:
    (worker,) = [child for child in process_of(job, 1).children if child.role == "dataloader-worker"]
    assert worker.last is not None
    assert worker.last.main is not None
    assert worker.last.main.wakes_in == pytest.approx(3000, abs=150)
    (frame,) = user_frames(worker.last.main.frames)
    assert (frame.line, frame.function.rpartition(".")[2]) == (9, "__getitem__")


def test_journals_differ_by_the_call_that_never_came(job: Job) -> None:
    counts = []
    for rank in job.snapshot.ranks:
        assert rank.journal is not None
        assert rank.journal.groups[0].members == (0, 1)
        counts.append(len([call for call in rank.journal.calls if call.op == "all_reduce"]))
        assert rank.first_store
    assert counts[0] == counts[1] + 1


def test_ports_and_connections(job: Job) -> None:
    (here,) = job.snapshot.hosts
    pids = {rank.process.pid for rank in job.snapshot.ranks if rank.process is not None}
    assert pids <= {port.pid for port in here.listening}
    pairs = {(c.local_port, c.remote_port): c.pid for c in here.connections if c.state == "ESTABLISHED"}
    assert any({pid, pairs.get(pair[::-1])} == pids for pair, pid in pairs.items())


def test_logs(job: Job) -> None:
    log = job.snapshot.ranks[1].log
    assert log is not None
    assert "step 3" in log.lines[-1]


def test_sources_of_both_sides_without_their_texts(job: Job) -> None:
    functions = {text.function: text for text in job.snapshot.sources}
    assert {"train", "__getitem__", "<module>"} <= functions.keys()
    assert "if index >= 4 and dist.get_rank() == 1:" in functions["__getitem__"].text
    assert 'print("…", step, flush=True)' in functions["train"].text


def test_it_survives_the_file(job: Job, tmp_path: Path) -> None:
    codec.dump_snapshot(job.snapshot, tmp_path / "job.hangdoc")
    assert codec.load_snapshot(tmp_path / "job.hangdoc") == job.snapshot


def test_the_job_is_unharmed(job: Job) -> None:
    for rank in (0, 1):
        pulse = procfs.pulse(process_of(job, rank).pid)
        assert pulse is not None
        assert pulse.state == "S"
