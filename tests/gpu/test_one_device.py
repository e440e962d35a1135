"""Jobs on one CUDA device. Skipped where there is none; written where none was at hand, so never run as yet."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from device import PROGRAMS, command, missing, variables

from hangdoc import api

if TYPE_CHECKING:
    from conftest import Watch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(missing()), reason=missing() or "there is a device")]


def line_of(program: str, text: str) -> str:
    lines = (PROGRAMS / program).read_text().splitlines()
    return f"{program}:{1 + next(number for number, line in enumerate(lines) if text in line)}"


def test_two_ranks_can_share_the_device(watch: Watch, tmp_path: Path) -> None:
    """What all tests with two ranks build on, and a healthy job: not a word of it."""
    finished = watch(command("two_ranks.py", "healthy", ranks=2), env=variables(tmp_path), stall_after=30)
    if "Duplicate GPU" in finished.stdout + finished.stderr:
        pytest.skip("NCCL refuses two ranks on one device in spite of NCCL_HOSTID")
    assert finished.status == 0, finished.explain()
    assert finished.document is None, finished.explain()


@pytest.mark.parametrize("way", ["skip", "operation"])
def test_the_rank_at_fault_is_named_while_both_stand_behind(way: str, watch: Watch, tmp_path: Path) -> None:
    finished = watch(command("two_ranks.py", way, ranks=2), env=variables(tmp_path), stall_after=6)
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
def test_a_device_that_never_ends_its_work_is_not_healthy(
    way: str, blocking: str, watch: Watch, tmp_path: Path
) -> None:
    env = {**variables(tmp_path), "TORCH_NCCL_BLOCKING_WAIT": blocking}
    finished = watch(command("one_rank.py", way, ranks=1), "--give-up-after", "10", env=env, stall_after=6)
    document = finished.document
    assert document is not None, finished.explain()
    assert document["outcome"] in ("hang", "slow"), finished.explain()
    assert "one_rank.py:" in document["verdict"], finished.explain()


@pytest.mark.parametrize("timing", [False, True])
def test_the_watchdogs_dump_is_read_after_its_time_out(timing: bool, watch: Watch, tmp_path: Path) -> None:
    env = variables(tmp_path, timing=timing)
    finished = watch(command("one_rank.py", "time-out", ranks=1), env=env, stall_after=60)
    assert (tmp_path / "trace_0").is_file(), finished.explain()
    job = api.load(tmp_path)
    journal = job.ranks[0].journal
    assert journal is not None
    assert [call.completed for call in journal.calls][-4:] == [True, True, True, False], finished.explain()
    assert finished.document is not None, finished.explain()
    assert finished.document["outcome"] == "crashed", finished.explain()


def test_nccls_own_service_answers(watch: Watch, tmp_path: Path) -> None:
    finished = watch(command("two_ranks.py", "skip", ranks=2), env=variables(tmp_path), stall_after=6)
    if "Duplicate GPU" in finished.stdout + finished.stderr:
        pytest.skip("NCCL refuses two ranks on one device in spite of NCCL_HOSTID")
    job = api.load(finished.snapshots()[-1])
    assert job.nccl is not None, [note for note in job.unavailable if note.what == "nccl"]
    assert job.nccl.seen >= 1
