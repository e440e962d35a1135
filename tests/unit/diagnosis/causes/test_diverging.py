"""Differing arguments in a job that hangs: gloo aborts on them, so no job of the suite can; NCCL waits."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from hangdoc import api


def call(number: int, size: int, dtype: str, *, done: bool) -> dict[str, Any]:
    """An all_reduce of one tensor, as NCCL's flight recorder writes it."""
    return {
        "frames": [{"name": "train", "filename": "/job/train.py", "line": 10}],
        "record_id": number - 1, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": number,
        "p2p_seq_id": 0, "op_id": number, "profiling_name": "nccl:all_reduce", "time_created_ns": 10**18 + number,
        "input_sizes": [[size]], "input_dtypes": [dtype], "output_sizes": [[size]], "output_dtypes": [dtype],
        "state": "completed" if done else "started", "retired": done, "timeout_ms": 600_000, "is_p2p": False,
    }  # fmt: skip


def dumps(folder: Path, *last: tuple[int, str]) -> Path:
    """A dump for each rank: one call that completed, then one that did not, on a tensor of that size and dtype."""
    ranks = json.dumps(list(range(len(last))))
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}
    for rank, (size, dtype) in enumerate(last):
        entries = [call(1, 4, "Float", done=True), call(2, size, dtype, done=False)]
        content = {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": entries}
        (folder / f"trace_{rank}").write_bytes(pickle.dumps(content))
    return folder


@pytest.mark.parametrize("odd", [(8, "Float"), (4, "Half")])
def test_one_call_with_other_arguments_is_named(tmp_path: Path, odd: tuple[int, str]) -> None:
    found = api.diagnose(dumps(tmp_path, (4, "Float"), odd, (4, "Float")))
    assert (found.outcome, found.cause and found.cause.code, found.culprits) == ("hang", "HD104", (1,))
    assert f"[{odd[0]}] {odd[1]} on rank 1" in found.verdict
    assert "all_reduce at train.py:10" in found.verdict


def test_equal_arguments_are_not(tmp_path: Path) -> None:
    found = api.diagnose(dumps(tmp_path, (4, "Float"), (4, "Float"), (4, "Float")))
    assert found.cause is None or found.cause.code != "HD104"


def test_two_ranks_that_disagree_are_blamed_in_turn(tmp_path: Path) -> None:
    found = api.diagnose(dumps(tmp_path, (6, "Float"), (8, "Float")))
    assert found.cause is not None
    assert found.cause.code == "HD104"
    assert found.confidence == "possible"
    assert {found.culprits, *found.alternatives} == {(0,), (1,)}


def test_of_two_the_one_that_never_gave_such_a_size_is_blamed(tmp_path: Path) -> None:
    """The call before had size 4 on both."""
    found = api.diagnose(dumps(tmp_path, (4, "Float"), (8, "Float")))
    assert (found.culprits, found.confidence) == ((1,), "likely")
