"""Dumps as the flight recorder of torch 2.13 writes them, and files of them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

LINE = {"name": "train", "filename": "/job/train.py", "line": 12}
MAIN = {"name": "<module>", "filename": "/job/train.py", "line": 40}


def entry(number: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "frames": [LINE, MAIN],
        "record_id": number,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "thread_name": "python",
        "thread_id": "140000000000000",
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": "gloo:all_reduce",
        "time_created_ns": 1_795_000_000_000_000_000 + number,
        "input_sizes": [[3, 4]],
        "input_dtypes": ["Float"],
        "output_sizes": [[3, 4]],
        "output_dtypes": ["Float"],
        "state": "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": True,
        "timeout_ms": 1_800_000,
        "is_p2p": False,
    } | changes


def dump(*entries: Any, **changes: Any) -> dict[str, Any]:
    return {
        "version": "2.10",
        "pg_config": {"": {"name": "", "desc": "", "ranks": "[]"}},
        "pg_status": {"0": {"last_enqueued_collective": 2, "last_completed_collective": 1}},
        "comm_lib_version": "",
        "entries": list(entries),
    } | changes


def nccl(number: int, **changes: Any) -> dict[str, Any]:
    """A call of a GPU job, completed."""
    known = {"state": "completed", "retired": True, "profiling_name": "nccl:all_reduce", "record_id": number - 1}
    return entry(number, **(known | changes))


def config(size: int, **groups: list[int]) -> dict[str, Any]:
    """``pg_config`` of a rank: the default group, and further ones by name."""
    return {
        name: {"name": name, "desc": "default_pg" if name == "0" else name, "ranks": str(ranks)}
        for name, ranks in {"0": list(range(size)), **groups}.items()
    }


def write(path: Path, content: dict[str, Any]) -> Path:
    """A pickle of it as torch makes them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol=2))
    return path
