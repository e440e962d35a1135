"""``--on-hang restart``: for which commands, for which verdicts, and which process it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hangdoc.capture.read import procfs
from hangdoc.errors import UsageError
from hangdoc.model.diagnosis import Activity, Cause, Diagnosis
from hangdoc.model.kinds import ActivityKind, Confidence, Outcome
from hangdoc.model.process import Frame, Process, ProcessExit, ProcessState
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot
from hangdoc.sidecar.listener import RankToEnd
from hangdoc.sidecar.restart import PATIENCE_SECONDS, Restarts, check_launcher, end_rank, rank_to_end


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --max-restarts 2 train.py",
        "/venv/bin/torchrun --nnodes 2 --max_restarts=2 train.py",
        "python -m torch.distributed.run --max-rest=1 train.py",
        "srun --ntasks-per-node 1 torchrun --max-restarts 3 train.py",
        "accelerate launch --max_restarts 1 train.py",
        "bash run.sh",
        "./run",
        "torchrun --max-restarts many train.py",  # torchrun says what is wrong with it
    ],
)
def test_commands_that_may_start_ranks_anew(line: str) -> None:
    check_launcher(line.split(), {})


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("torchrun train.py", "--max-restarts is 0"),
        ("torchrun --max-restarts 0 train.py", "--max-restarts is 0"),
        ("python -m torch.distributed.run --nproc-per-node 2 train.py", "--max-restarts is 0"),
        ("srun torchrun --max-restarts=0 train.py", "--max-restarts is 0"),
        ("accelerate launch train.py", "--max-restarts is 0"),
        ("python train.py --max-restarts 3", "nothing starts the ranks of python anew"),
        ("/usr/bin/python3.11 train.py", "nothing starts the ranks of python3.11 anew"),
        ("mpirun -n 4 python train.py", "nothing starts the ranks of mpirun anew"),
        ("srun python train.py", "nothing starts the ranks of srun anew"),
        ("deepspeed train.py", "nothing starts the ranks of deepspeed anew"),
    ],
)
def test_commands_that_start_none_anew_are_refused(line: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        check_launcher(line.split(), {})


def test_torchruns_own_variable_counts() -> None:
    check_launcher(["torchrun", "train.py"], {"PET_MAX_RESTARTS": "2"})
    with pytest.raises(UsageError):
        check_launcher(["torchrun", "--max-restarts", "0", "train.py"], {"PET_MAX_RESTARTS": "2"})


FRAME = Frame("/job/train.py", 9, "main")
FOUND = Diagnosis(
    Outcome.HANG,
    "Rank 1 hangs.",
    Confidence.LIKELY,
    Cause("HD101", "", ""),
    culprits=(1,),
    ranks=(
        Activity(1, "b", 71, ActivityKind.SLEEPING, "", FRAME),
        Activity(0, "a", 70, ActivityKind.IN_COLLECTIVE, ""),
    ),
)


def job(*, ended: ProcessExit | None = None, seen: bool = True) -> JobSnapshot:
    looks = (ProcessState(1.0, "S"),) if seen else ()
    ranks = [
        RankSnapshot(rank, host, "probe", process=Process(70 + rank, 1, "rank", started=500.0 + rank, looks=looks))
        for rank, host in ((0, "a"), (1, "b"))
    ]
    return JobSnapshot(1.0, "watch", ranks=(ranks[0], replace(ranks[1], exit=ended)))


def test_the_rank_that_a_verdict_names_is_ended() -> None:
    found = rank_to_end(FOUND, job())
    assert isinstance(found, RankToEnd)
    assert (found.rank, found.pid, found.started, found.host) == (1, 71, 501.0, "b")


@pytest.mark.parametrize(
    ("found", "snapshot", "why"),
    [
        (replace(FOUND, outcome=Outcome.SLOW), job(), "the verdict is no hang"),
        (replace(FOUND, confidence=Confidence.POSSIBLE), job(), "the verdict is only possible"),
        (replace(FOUND, culprits=()), job(), "the verdict names no rank"),
        (replace(FOUND, culprits=(5,)), job(), "no rank to blame is alive"),
        (FOUND, job(ended=ProcessExit(1.0, signal=9)), "no rank to blame is alive"),
        (FOUND, job(seen=False), "no rank to blame is alive"),
    ],
)
def test_a_verdict_that_names_no_living_rank_ends_none(found: Diagnosis, snapshot: JobSnapshot, why: str) -> None:
    assert rank_to_end(found, snapshot) == why


def test_equal_verdicts_have_one_mark() -> None:
    def mark(found: Diagnosis) -> str:
        end = rank_to_end(found, job())
        assert isinstance(end, RankToEnd)
        return end.mark

    assert mark(replace(FOUND, verdict="In other words.")) == mark(FOUND)
    assert mark(replace(FOUND, cause=Cause("HD102", "", ""))) != mark(FOUND)
    moved = replace(FOUND.ranks[0], where=Frame("/job/train.py", 10, "main"))
    assert mark(replace(FOUND, ranks=(moved,))) != mark(FOUND)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(300)"],
                               stdout=subprocess.PIPE)  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def of(process: subprocess.Popen[bytes]) -> RankToEnd:
    entry = procfs.stat(process.pid)
    assert entry is not None
    return RankToEnd(1, process.pid, procfs.start_time(entry), "a", "mark")


ELASTIC = {"TORCHELASTIC_MAX_RESTARTS": "2", "TORCHELASTIC_RESTART_COUNT": "1"}


def test_the_process_is_killed(sleeper: subprocess.Popen[bytes]) -> None:
    assert end_rank(of(sleeper), ELASTIC) == ""
    assert sleeper.wait(20) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("environment", "later", "why"),
    [
        ({}, 0.0, "starts no rank anew"),
        ({"TORCHELASTIC_MAX_RESTARTS": "0"}, 0.0, "starts no rank anew"),
        ({**ELASTIC, "TORCHELASTIC_RESTART_COUNT": "2"}, 0.0, "has used the 2 restarts"),
        (ELASTIC, 60.0, "has ended"),
        (ELASTIC, -60.0, "has ended"),
    ],
)
def test_no_other_process_is(
    sleeper: subprocess.Popen[bytes], environment: dict[str, str], later: float, why: str
) -> None:
    end = of(sleeper)
    assert why in end_rank(replace(end, started=end.started + later), environment)
    assert sleeper.poll() is None
    assert Path(f"/proc/{sleeper.pid}").exists()


def test_what_is_remembered() -> None:
    restarts = Restarts()
    end = RankToEnd(1, 71, 1.0, "a", "mark")
    assert not restarts.was_in_vain(end)
    restarts.begin(end, (70, 71), 10.0)
    assert restarts.under_way
    assert restarts.was_in_vain(replace(end, rank=3, pid=5))
    assert not restarts.has_come((70,))
    assert not restarts.is_overdue(10.0 + PATIENCE_SECONDS / 2)
    assert restarts.is_overdue(10.0 + PATIENCE_SECONDS)
    assert not restarts.is_overdue(10.0 + PATIENCE_SECONDS)
    assert restarts.has_come((70, 99))
    assert not restarts.under_way
