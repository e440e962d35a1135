"""A capture whose sources hang or break: it ends in time, says so, and keeps the others."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from hangdoc.capture import host
from hangdoc.capture.find.target import RankTarget
from hangdoc.capture.host import capture_job
from hangdoc.capture.read import blocked_calls, logs, process_looks, procfs, sockets, sources, stacks
from hangdoc.capture.request import CaptureOptions, CaptureRequest
from hangdoc.capture.safe.deadline import Task
from hangdoc.model.journal import Journal
from hangdoc.model.process import Frame, ProcessExit
from hangdoc.model.snapshot import JobSnapshot

Broken = Callable[..., NoReturn]


@pytest.fixture
def hang() -> Iterator[Broken]:
    released = threading.Event()

    def wait(*arguments: object, **more: object) -> NoReturn:
        released.wait(60)
        raise OSError("at last")

    yield wait
    released.set()


def fail(*arguments: object, **more: object) -> NoReturn:
    raise RuntimeError("a fault")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "dump", lambda pids, **more: {})
    monkeypatch.setattr(host, "_PATIENCE", 0.3)
    monkeypatch.setattr(process_looks, "_PROC_SECONDS", 0.3)


def capture(*targets: RankTarget, **more: object) -> JobSnapshot:
    chosen = targets or (RankTarget(0, os.getpid(), "environment", 1),)
    return capture_job(CaptureRequest(chosen, options=CaptureOptions(gap=0.0), **more))  # type: ignore[arg-type]


SOURCES = [
    (sockets, "read_sockets", "sockets"),
    (sources.Sources, "of_users", "source"),
    (logs, "log_files", "log"),
    (blocked_calls, "blocking_files", "files"),
]


@pytest.mark.parametrize(("module", "name", "what"), SOURCES)
def test_a_source_that_hangs(
    module: object, name: str, what: str, hang: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, hang)
    began = time.monotonic()
    snapshot = capture()
    assert time.monotonic() - began < 5
    assert [item.why for item in snapshot.unavailable if item.what == what] == ["no answer in time"]
    assert snapshot.ranks[0].process is not None
    assert len(snapshot.ranks[0].process.looks) == 2


@pytest.mark.parametrize(("module", "name", "what"), SOURCES)
def test_a_source_that_breaks(module: object, name: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, name, fail)
    snapshot = capture()
    (found,) = [item for item in snapshot.unavailable if item.what == what]
    assert "a fault" in found.why
    assert snapshot.ranks[0].process is not None
    assert len(snapshot.ranks[0].process.looks) == 2


def test_a_process_whose_proc_hangs(hang: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "look", hang)
    snapshot = capture()
    (found,) = [item for item in snapshot.unavailable if item.what == "process"]
    assert found.rank == 0
    assert snapshot.ranks[0].process is not None
    assert snapshot.ranks[0].process.looks == ()


def test_a_look_that_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "dump", fail)
    assert any("a fault" in item.why for item in capture().unavailable)


def test_what_the_caller_knows_is_kept() -> None:
    ended = ProcessExit(at=5.0, status=7)
    journal = Journal(source="probe")
    target = RankTarget(1, 2**22 + 1, "probe", 2, local_rank=1, restart=3, host="h", environment=(("RANK", "1"),))
    snapshot = capture(target, exits={1: ended}, journals={1: journal}, run_id="r", command=("x",), exit_status=-9)
    (rank,) = snapshot.ranks
    assert (rank.rank, rank.local_rank, rank.restart, rank.host) == (1, 1, 3, "h")
    assert rank.environment == (("RANK", "1"),)
    assert rank.exit == ended
    assert rank.journal == journal
    assert (snapshot.run_id, snapshot.command, snapshot.exit_status, snapshot.world_size) == ("r", ("x",), -9, 2)


def test_the_statements_that_wrote_lines_of_files_that_ranks_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        "import os, sys, time\n"
        "rank = int(os.environ['RANK'])\n"
        "if rank:\n"
        "    print(f'rank {rank}: nothing was kept', flush=True)\n"
        "sys.stderr.write('the secret is out\\n')\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    monkeypatch.setattr(sources, "stacks_of", lambda rank: [(Frame(str(program), 7, "<module>"),)])
    outputs = [tmp_path / "job.out", tmp_path / "job.err"]
    with outputs[0].open("w") as out, outputs[1].open("w") as err:
        out.write("a line of nobody's\n")
        out.flush()
        command = [sys.executable, str(program)]
        ranks = [
            subprocess.Popen(command, stdout=out, stderr=err, env={**os.environ, "RANK": str(rank)})
            for rank in range(2)
        ]
        launcher = subprocess.Popen(["sleep", "60"], stdout=out, stderr=err)
    try:
        until = time.monotonic() + 60
        while outputs[0].read_text().count("ready") < 2 and time.monotonic() < until:
            time.sleep(0.05)
        targets = [RankTarget(rank, process.pid, "environment", 2) for rank, process in enumerate(ranks)]
        found = capture(*targets, launcher_pid=launcher.pid)
        assert sorted((line.text, line.places, line.rank, line.output) for line in found.written) == [
            ("rank 1: nothing was kept", ((str(program), 4),), 1, str(outputs[0])),
            *[("the secret is out", ((str(program), 5),), None, str(outputs[1]))] * 2,
        ]
        assert not any("nothing was kept" in text.text for text in found.sources)
        without = CaptureOptions(gap=0.0, no_source=True)
        assert capture_job(CaptureRequest(tuple(targets), launcher_pid=launcher.pid, options=without)).written == ()
    finally:
        for process in (*ranks, launcher):
            process.kill()
            process.wait()


def test_errors_in_a_log_that_ranks_share_with_their_launcher(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    with log.open("w") as both:
        ranks = [subprocess.Popen(["sleep", "60"], stdout=both, stderr=both) for _ in range(3)]
        both.write("epoch 3\nrank 3: [Errno 122] Disk quota exceeded: '/ckpt/3'\nepoch 4\n")
    try:
        launcher, *members = (process.pid for process in ranks)
        targets = [RankTarget(rank, pid, "environment", 2) for rank, pid in enumerate(members)]
        found = capture(*targets, launcher_pid=launcher)
        assert found.log is not None
        assert found.log.lines == ("rank 3: [Errno 122] Disk quota exceeded: '/ckpt/3'",)
        assert [rank.log for rank in found.ranks] == [None, None]
        alone = capture(targets[0])  # whose file it is alone, as far as is known: its last lines are its own
        assert alone.log is None
        assert alone.ranks[0].log is not None
        assert alone.ranks[0].log.lines[-1] == "epoch 4"
    finally:
        for process in ranks:
            process.kill()
            process.wait()


def test_nothing_to_look_at() -> None:
    snapshot = capture_job(CaptureRequest([], options=CaptureOptions(gap=0.0)))
    assert snapshot.ranks == ()
    assert snapshot.world_size is None


def test_a_task_hands_on_results_and_errors(hang: Broken) -> None:
    until = time.monotonic() + 5
    assert Task(lambda: 7).result(until) == 7
    assert Task(lambda: None).result(until) is None
    with pytest.raises(RuntimeError, match="a fault"):
        Task(fail).result(until)
    with pytest.raises(TimeoutError):
        Task(hang).result(time.monotonic())
