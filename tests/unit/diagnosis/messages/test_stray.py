"""Messages of devices that their peers cannot take, and ranks that ended long before the others timed out."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
from device_dumps import BEGAN, folder

from hangdoc import api
from hangdoc.model.diagnosis import Diagnosis


def said(found: Diagnosis) -> tuple[tuple[int, ...], str | None, str]:
    return found.culprits, found.cause.code if found.cause else None, found.confidence


def ring(size: int, rounds: int) -> dict[int, str]:
    """Batches around a ring: each rank sends to the next one and receives from the one before."""
    batch = {rank: f"[send>{(rank + 1) % size},recv<{(rank - 1) % size}]" for rank in range(size)}
    return {rank: " ".join([batch[rank], "all_reduce"] * rounds) for rank in range(size)}


@pytest.mark.parametrize("frames", [True, False])
def test_a_batch_that_sends_another_size_is_no_stuck_device(tmp_path: Path, frames: bool) -> None:
    ranks = ring(4, 3)
    for rank in range(4):
        size = "/2" if rank == 1 else ""
        ranks[rank] += f" [send>{(rank + 1) % 4}{size},recv<{(rank - 1) % 4}]{'+' if rank in (1, 2) else ''}"
        ranks[rank] += " all_reduce*"
    found = api.diagnose(folder(tmp_path, ranks, after=700.0, frames=frames))
    assert (found.culprits, found.confidence) == ((1,), "likely")


def test_sizes_that_both_sides_had_before_are_a_message_too_many(tmp_path: Path) -> None:
    """Rank 0 left out the long message of a round of a long and a short one: no size is wrong."""
    step = {0: "send>1/8@60 send>1/2@61", 1: "recv<0/8@70 recv<0/2@71"}
    ranks = {rank: " ".join([words, "all_reduce"] * 3) for rank, words in step.items()}
    ranks = {0: f"{ranks[0]} send>1/2@61+ all_reduce*", 1: f"{ranks[1]} recv<0/8@70+ recv<0/2@71* all_reduce*"}
    found = api.diagnose(folder(tmp_path, ranks, after=700.0))
    assert said(found)[:2] == ((0,), "HD202")


@pytest.mark.parametrize("frames", [True, False])
def test_a_batch_to_another_rank_than_the_line_always_had(tmp_path: Path, frames: bool) -> None:
    ranks = ring(5, 3)
    for rank in range(5):
        to = 4 if rank == 1 else (rank + 1) % 5
        ranks[rank] += f" [send>{to},recv<{(rank - 1) % 5}]* all_reduce*"
    found = api.diagnose(folder(tmp_path, ranks, after=700.0, frames=frames))
    assert said(found) == ((1,), "HD202", "likely")


def ended(where: Path, after: dict[int, float], *, timeout: float = 600.0) -> Diagnosis:
    """All have issued the same; each rank's dump is written so many seconds after the first call."""
    ranks = dict.fromkeys(range(4), "all_reduce all_reduce all_reduce*")
    return api.diagnose(folder(where, ranks, after=after, timeout=timeout))


def test_a_clock_that_is_minutes_off_is_no_end(tmp_path: Path) -> None:
    """Rank 2's dump is older than the others', and its call had timed out all the same."""
    found = ended(tmp_path, {0: 601, 1: 602, 2: 601, 3: 900})
    assert found.cause is None or found.cause.code != "HD401"


def test_a_rank_that_came_late_has_not_ended(tmp_path: Path) -> None:
    found = ended(tmp_path, {0: 601, 1: 602, 2: 300, 3: 601})
    assert found.cause is None or found.cause.code != "HD401"


def test_a_count_of_messages_is_no_call_that_was_issued(tmp_path: Path) -> None:
    """Rank 0's dump shows only what was under way: nothing. Its count is that of its messages."""
    path = folder(tmp_path, dict.fromkeys(range(3), "all_reduce all_reduce*"), after=700.0, only_active=True)
    for rank in range(3):
        file = path / f"nccl_trace_rank_{rank}"
        content = pickle.loads(file.read_bytes())
        content["pg_status"] = {"0": {"last_enqueued_collective": 2 if rank else 12, "last_completed_collective": 12}}
        content["entries"] = content["entries"] if rank else []
        file.write_bytes(pickle.dumps(content, protocol=2))
        os.utime(file, (BEGAN + 700, BEGAN + 700))
    found = api.diagnose(path)
    assert (found.outcome, found.culprits) == ("hang", (0,))
    assert "Rank 0 has not issued all_reduce" in found.verdict
