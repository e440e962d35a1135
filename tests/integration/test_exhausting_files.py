"""Small files that would take all memory or time: `hangdoc diagnose` says so, or answers, within its means."""

from __future__ import annotations

import gzip
import json
import pickle
import resource
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MOST_MEMORY = 1 << 30
MOST_SECONDS = 10.0
HEAD = b'{"schema":"hangdoc.snapshot/1","taken":1.0,"mode":"watch",'
CALL = b'{"group":"0","sequence":1,"op_id":1,"op":"all_reduce","stack":-1,"input_sizes":[[4]],"output_sizes":[[4]]},'


def expanding(path: Path, head: bytes, unit: bytes, times: int) -> Path:
    """A gzip file of a few hundred KB: ``head``, then ``unit`` so many times."""
    packer = zlib.compressobj(9, wbits=31)
    block = unit * max(1, (1 << 20) // len(unit))
    with path.open("wb") as file:
        file.write(packer.compress(head))
        for _ in range(times * len(unit) // len(block) + 1):
            file.write(packer.compress(block))
        file.write(packer.flush())
    return path


def entry(word: str, **changes: Any) -> dict[str, Any]:
    return {
        "frames": [{"name": "train", "filename": "/job/train.py", "line": 10 + len(word)}],
        "record_id": 0, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": 1, "p2p_seq_id": 0,
        "op_id": 1, "profiling_name": f"gloo:{word}", "time_created_ns": 10**18, "input_sizes": [[4]],
        "output_sizes": [[4]], "state": "scheduled", "retired": False, "is_p2p": False,
    } | changes  # fmt: skip


def dumps(folder: Path, count: int, config: dict[str, Any], entries: Callable[[int], list[Any]]) -> Path:
    folder.mkdir()
    for rank in range(count):
        content = {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": entries(rank)}
        (folder / f"trace_{rank}").write_bytes(pickle.dumps(content, protocol=4))
    return folder


def raw(folder: Path, name: str, data: bytes) -> Path:
    folder.mkdir()
    (folder / name).write_bytes(data)
    return folder


def shared_by_all(path: Path, ranks: int, calls: int) -> Path:
    """A snapshot whose ranks all have the same many calls, which are in it once."""
    rows = {"groups": [], "calls": [[[0, calls]]], "called": ["0"], "order": -1, "point_to_points": [], "stacks": []}
    of_rank = {"host": "", "identity": "probe", "journal": {"source": "probe"}}
    job = {"schema": "hangdoc.snapshot/1", "taken": 1.0, "mode": "watch"}
    call = {"group": "", "op_id": 1, "op": "all_reduce", "stack": -1}
    document = {
        "schema": "hangdoc.snapshot/2",
        "job": {**job, "ranks": [{"rank": rank, **of_rank} for rank in range(ranks)]},
        "groups": [],
        "calls": [{**call, "sequence": number} for number in range(calls)],
        "point_to_points": [],
        "stacks": [],
        "orders": [],
        "journals": [{"rank": rank, **rows} for rank in range(ranks)],
    }
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return path


def large_lists(_rank: int) -> list[Any]:
    sizes = [[1] * 64] * 64
    return [entry("barrier", input_sizes=sizes, output_sizes=sizes, thread_name="x" * 100_000)] * 300_000


EVERYBODY = json.dumps(list(range(100_000)))

CASES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "a gzip without an end": (
        lambda at: expanding(at / "a.hangdoc", b"{", b" ", 200 << 20),
        "expands to more than 192 MiB",
    ),
    "numbers": (
        lambda at: expanding(at / "a.hangdoc", HEAD + b'"library_roots":[', b"1,", 60 << 20),
        "holds more than 8,000,000 values",
    ),
    "items of a wrong type": (
        lambda at: expanding(at / "a.hangdoc", HEAD + b'"library_roots":[', b"1,", 7_000_000),
        "is damaged",
    ),
    "900,000 calls": (
        lambda at: expanding(
            at / "a.hangdoc",
            HEAD + b'"ranks":[{"rank":0,"host":"","identity":"probe","journal":{"source":"probe","calls":[',
            CALL,
            900_000,
        ),
        "holds more than 8,000,000 values",
    ),
    "30,000 calls of 30,000 ranks": (
        lambda at: shared_by_all(at / "a.hangdoc", 30_000, 30_000),
        "unfold to more than 40,000,000 entries",
    ),
    "100,000 members of which two are here": (
        lambda at: dumps(
            at / "d",
            2,
            {"0": {"name": "0", "desc": "default_pg", "ranks": EVERYBODY}},
            lambda rank: [entry(("barrier", "all_reduce")[rank])],
        ),
        "Rank 1 is in all_reduce",
    ),
    "100,000 members of many groups": (
        lambda at: dumps(
            at / "d",
            2,
            {str(n): {"name": str(n), "desc": "", "ranks": EVERYBODY} for n in range(10_000)},
            lambda _: [entry("barrier")],
        ),
        "The dumps of ranks 2-99999 are missing",
    ),
    "a rank that is a date": (
        lambda at: raw(
            at / "d", "trace_20251122", pickle.dumps({"version": "2.10", "entries": [entry("barrier")]})
        ),
        "trace_20251122: the number at the end of its name is no rank",
    ),
    "a memo number": (lambda at: raw(at / "d", "trace_0", b"\x80\x02Nr\xff\xff\xff\x7f."), "384 MiB of memory"),
    "a set for every byte": (
        lambda at: raw(at / "d", "trace_0", b"\x80\x04(" + b"\x8f" * (8 << 20) + b"t."),
        "384 MiB of memory",
    ),
    "one entry, named again and again": (
        lambda at: dumps(at / "d", 4, {}, lambda _: [entry("barrier")] * 900_000),
        "wait in barrier",
    ),
    "one list of sizes for all entries": (
        lambda at: dumps(at / "d", 1, {}, large_lists),
        "Rank 0 waits in barrier",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_small_file_takes_little(tmp_path: Path, name: str) -> None:
    make, words = CASES[name]
    path = make(tmp_path)
    began, before = time.monotonic(), _cpu_of_children()
    done = subprocess.run(
        [sys.executable, "-m", "hangdoc", "diagnose", str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY)),
    )
    # A busy machine takes longer, and not more of its processor.
    taken = min(_cpu_of_children() - before, time.monotonic() - began)
    told = " ".join((done.stdout + done.stderr).split())
    assert words in told
    assert done.returncode in (1, 3)
    assert "Traceback" not in told
    assert taken < MOST_SECONDS


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
