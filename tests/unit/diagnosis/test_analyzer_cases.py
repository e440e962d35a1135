"""What torch's own analyzer of dumps is tested with, as folders (torch's test_fr_analysis.py, November 2026)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recorder_dumps import config, dump, nccl, write

from hangdoc import api
from hangdoc.capture.read.flight_recorder import operation
from hangdoc.model.diagnosis import Diagnosis

RANKS = 3
PENDING = {"state": "scheduled", "retired": False}


def diagnosed(where: Path, *changes: dict[str, Any], pending: bool = True) -> Diagnosis:
    """Three equal calls on each rank, the last of which each rank changes in its own way. The files' times are a
    copy's."""
    for rank, change in enumerate(changes):
        calls = [nccl(1), nccl(2), nccl(3, **((PENDING if pending else {}) | change))]
        write(where / f"trace_{rank}", dump(*calls, pg_config=config(len(changes))))
    return api.diagnose(where)


def code(found: Diagnosis) -> str | None:
    return found.cause.code if found.cause is not None else None


@pytest.mark.parametrize("change", [{"input_sizes": [[8]]}, {"input_dtypes": ["Half"]}], ids=["size", "type"])
def test_a_rank_that_gives_another_input(tmp_path: Path, change: dict[str, Any]) -> None:
    found = diagnosed(tmp_path, {}, change, {})
    assert (found.outcome, found.culprits, code(found)) == ("hang", (1,), "HD104")


@pytest.mark.xfail(strict=True, reason="only what goes into a call is compared, not what is to come out of it")
@pytest.mark.parametrize("change", [{"output_sizes": [[8]]}, {"output_dtypes": ["Half"]}], ids=["size", "type"])
def test_a_rank_that_expects_another_output(tmp_path: Path, change: dict[str, Any]) -> None:
    found = diagnosed(tmp_path, {}, change, {})
    assert (found.outcome, found.culprits, code(found)) == ("hang", (1,), "HD104")


@pytest.mark.xfail(strict=True, reason="whether a call's own sizes fit each other is not looked at")
def test_the_same_wrong_sizes_on_all_ranks(tmp_path: Path) -> None:
    """An all_reduce gives back what it takes: of 4 elements it cannot make 5, whoever asks."""
    found = diagnosed(tmp_path, *[{"input_sizes": [[4, 4]], "output_sizes": [[5, 4]]}] * RANKS)
    assert (found.outcome, code(found)) == ("hang", "HD104")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"input_sizes": [[8]]}, "all_reduce #3 of default_pg is [3, 4] Float on ranks 0 and 2, [8] Float on rank 1"),
        ({"input_dtypes": ["Half"]}, "[3, 4] Half on rank 1"),
        ({"profiling_name": "nccl:broadcast"}, "all_reduce on ranks 0 and 2, broadcast on rank 1"),
    ],
    ids=["size", "type", "operation"],
)
def test_calls_that_differ_are_told_though_all_completed(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    found = diagnosed(tmp_path, {}, change, {}, pending=False)
    assert (found.outcome, found.culprits, found.confidence) == ("hang", (), "possible")
    assert said in found.verdict and "all completed" in found.why


def test_calls_that_all_completed_and_agree_are_healthy(tmp_path: Path) -> None:
    assert diagnosed(tmp_path, {}, {}, {}, pending=False).outcome == "healthy"


def test_a_gather_differs_at_its_root_rightly(tmp_path: Path) -> None:
    root, other = {"output_sizes": [[4, 4]] * RANKS}, {"output_sizes": [[]], "output_dtypes": []}
    gather = {"profiling_name": "nccl:gather"}
    assert diagnosed(tmp_path, gather | root, gather | other, gather | other, pending=False).outcome == "healthy"


def test_a_message_from_anyone_is_a_message() -> None:
    assert operation("nccl:recv 0<-?") == ("recv_anysource", -1)


def test_each_message_that_is_owed_is_named(tmp_path: Path) -> None:
    for rank in (0, 1):
        send = nccl(2, **PENDING, profiling_name=f"nccl:send {rank}->{rank + 2}", is_p2p=True, p2p_seq_id=1)
        write(tmp_path / f"trace_{rank}", dump(nccl(1), send, pg_config=config(4)))
        write(tmp_path / f"trace_{rank + 2}", dump(nccl(1), pg_config=config(4)))
    found = api.diagnose(tmp_path)
    assert (found.outcome, found.culprits) == ("hang", (2, 3))
    assert "Ranks 2 and 3 have not issued the recvs from ranks 0 and 1, which waited for them" in found.verdict
