"""Jobs on one CUDA device. Skipped where there is none; written where none was at hand, so never run as yet."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from device import PROGRAMS, TIME_OUT_SECONDS, command, missing, variables

from hangdoc import api

if TYPE_CHECKING:
    from conftest import Watch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(missing()), reason=missing() or "there is a device")]


DEADLINE = 240
"""Seconds: a time-out, PyTorch's wait for the dumps and its end of the process come one after the other."""


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    """Where the job's dumps go, and nothing else."""
    folder = tmp_path / "dumps"
    folder.mkdir()
    return folder


def line_of(program: str, text: str) -> str:
    lines = (PROGRAMS / program).read_text().splitlines()
    return f"{program}:{1 + next(number for number, line in enumerate(lines) if text in line)}"


def test_two_ranks_can_share_the_device(watch: Watch, dumps: Path) -> None:
    """What all tests with two ranks build on, and a healthy job: not a word of it."""
    finished = watch(command("two_ranks.py", "healthy", ranks=2), env=variables(dumps), stall_after=30)
    if "Duplicate GPU" in finished.stdout + finished.stderr:
        pytest.skip("NCCL refuses two ranks on one device in spite of NCCL_HOSTID")
    assert finished.status == 0, finished.explain()
    assert finished.document is None, finished.explain()


@pytest.mark.parametrize("way", ["skip", "operation"])
def test_the_rank_at_fault_is_named_while_both_stand_behind(way: str, watch: Watch, dumps: Path) -> None:
    finished = watch(command("two_ranks.py", way, ranks=2), env=variables(dumps), stall_after=6)
    if "Duplicate GPU" in finished.stdout + finished.stderr:
        pytest.skip("NCCL refuses two ranks on one device in spite of NCCL_HOSTID")
    document = finished.document
    assert document is not None, finished.explain()
    assert document["outcome"] == "hang", finished.explain()
    assert 1 in document["culprits"] or [1] in document["alternatives"], finished.explain()
    where = "dist.broadcast" if way == "operation" else "    dist.all_reduce"
    assert line_of("two_ranks.py", where) in finished.stderr, finished.explain()


@pytest.mark.parametrize("blocking", ["0", "1"])
@pytest.mark.parametrize("way", ["kernel", "copy"])
def test_a_device_that_never_ends_its_work_is_not_healthy(way: str, blocking: str, watch: Watch, dumps: Path) -> None:
    env = {**variables(dumps), "TORCH_NCCL_BLOCKING_WAIT": blocking}
    finished = watch(command("one_rank.py", way, ranks=1), "--give-up-after", "10", env=env, stall_after=6)
    document = finished.document
    assert document is not None, finished.explain()
    assert document["outcome"] in ("hang", "slow"), finished.explain()
    assert "one_rank.py:" in document["verdict"], finished.explain()


@pytest.mark.parametrize("timing", [False, True])
def test_the_watchdogs_dump_is_read_after_its_time_out(timing: bool, watch: Watch, dumps: Path) -> None:
    env = variables(dumps, timing=timing)
    finished = watch(command("one_rank.py", "time-out", ranks=1), env=env, stall_after=60, deadline=DEADLINE)
    assert (dumps / "trace_0").is_file(), finished.explain()
    job = api.load(dumps)
    journal = job.ranks[0].journal
    assert journal is not None
    assert [call.completed for call in journal.calls][-4:] == [True, True, True, False], finished.explain()
    assert finished.document is not None, finished.explain()
    assert finished.document["outcome"] == "crashed", finished.explain()


def test_a_rank_behind_a_kernel_of_its_own_is_not_taken_for_one_that_skipped(watch: Watch, dumps: Path) -> None:
    """Rank 1 issued every call; its device does not get to the third one."""
    finished = watch(command("two_ranks.py", "behind-a-kernel", ranks=2), env=variables(dumps), stall_after=6)
    if "Duplicate GPU" in finished.stdout + finished.stderr:
        pytest.skip("NCCL refuses two ranks on one device in spite of NCCL_HOSTID")
    document = finished.document
    assert document is not None, finished.explain()
    assert document["outcome"] in ("hang", "slow"), finished.explain()
    assert (document["cause"] or {}).get("code") in ("HD602", None), finished.explain()
    assert document["confidence"] != "certain", finished.explain()


@pytest.mark.parametrize("timing", [False, True])
def test_the_watchdogs_dumps_of_both_ranks_name_the_one_that_skipped(timing: bool, watch: Watch, dumps: Path) -> None:
    """Rank 0, whose call timed out, is the victim."""
    env = variables(dumps, timing=timing)
    finished = watch(command("two_ranks.py", "skip", ranks=2), env=env, stall_after=60, deadline=DEADLINE)
    if "Duplicate GPU" in finished.stdout + finished.stderr:
        pytest.skip("NCCL refuses two ranks on one device in spite of NCCL_HOSTID")
    assert {path.name for path in dumps.iterdir() if path.is_file()} >= {"trace_0", "trace_1"}, finished.explain()
    found = api.diagnose(dumps)
    assert found.outcome == "hang"
    assert found.culprits == (1,) or (1,) in found.alternatives
    assert f"PyTorch timed out after {TIME_OUT_SECONDS} s" in found.verdict


def test_nccls_own_service_answers(watch: Watch, dumps: Path) -> None:
    finished = watch(command("two_ranks.py", "skip", ranks=2), env=variables(dumps), stall_after=6)
    if "Duplicate GPU" in finished.stdout + finished.stderr:
        pytest.skip("NCCL refuses two ranks on one device in spite of NCCL_HOSTID")
    job = api.load(finished.snapshots()[-1])
    assert job.nccl is not None, [note for note in job.unavailable if note.what == "nccl"]
    assert job.nccl.seen >= 1
