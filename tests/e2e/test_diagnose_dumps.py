"""``hangdoc diagnose`` on dumps, from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from recorder_dumps import config, dump, nccl, write
from terminal import Terminal, environment

PROGRAM = """\
import torch.distributed as dist


def train(rank, step):
    if rank != 1:
        dist.all_reduce(step)
    dist.broadcast(step)


train(0, 1)
"""
START = 1_795_000_000 * 10**9


def call(number: int, line: int, name: str, **changes: Any) -> dict[str, Any]:
    frames = [
        {"name": "train", "filename": "/job/project/train.py", "line": line},
        {"name": "<module>", "filename": "/job/project/train.py", "line": 10},
    ]
    known = {"frames": frames, "profiling_name": f"nccl:{name}", "time_created_ns": START + number * 10**9}
    return nccl(number, **(known | changes))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Rank 1 of 4 has left out the all_reduce."""
    waits = {"state": "started", "retired": False, "timeout_ms": 600_000}
    for rank in range(4):
        last = call(2, 7, "broadcast", **waits) if rank == 1 else call(2, 6, "all_reduce", **waits)
        path = tmp_path / "dumps" / f"nccl_trace_rank_{rank}"
        write(path, dump(call(1, 7, "broadcast"), last, pg_config=config(4)))
    return tmp_path / "dumps"


def hangdoc(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hangdoc", *map(str, words)],
        env=environment(COLUMNS="100"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


def test_a_copy_of_the_program_shows_the_condition(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "copy" / "project").mkdir(parents=True)
    (tmp_path / "copy" / "project" / "train.py").write_text(PROGRAM)
    without, found = (
        json.loads(hangdoc("diagnose", folder, "--json", *more).stdout)
        for more in ((), ("--source", tmp_path / "copy"))
    )
    assert (without["culprits"], found["culprits"]) == ([1], [1])
    assert without["divergence"]["branch"] is None
    assert any("--source DIR" in note["why"] for note in without["unavailable"])
    assert found["divergence"]["branch"]["condition"] == "if rank != 1:"
    assert not [note for note in found["unavailable"] if note["what"] == "source"]


def test_one_dump_asks_for_its_folder(folder: Path) -> None:
    done = hangdoc("diagnose", folder / "nccl_trace_rank_2")
    assert done.returncode == 3 and done.stdout == ""
    assert "dump of one rank" in done.stderr and f"hangdoc diagnose {folder}" in done.stderr


def test_a_source_that_is_no_folder_is_a_mistake(folder: Path) -> None:
    done = hangdoc("diagnose", folder, "--source", folder / "no")
    assert done.returncode == 2 and "no such directory" in done.stderr


SLOWLY = """
import runpy, time
import hangdoc.progress as progress
progress._PATIENCE, progress._REDRAW, count = 0, 0.01, progress.Line.reading
def slowly(line, *words):
    show = count(line, *words)
    return lambda *numbers: (show(*numbers), time.sleep(0.3))
progress.Line.reading = slowly
runpy.run_module("hangdoc", run_name="__main__")
"""


def test_only_a_terminal_shows_the_progress(folder: Path, tmp_path: Path) -> None:
    assert "reading" not in hangdoc("diagnose", folder).stderr
    command = [sys.executable, "-c", SLOWLY, "diagnose", str(folder)]
    terminal = Terminal(command, environment(), tmp_path)
    try:
        terminal.read_until("reading: 4 of 4 files")
        terminal.read_until("hangdoc . hang")
    finally:
        terminal.process.kill()
        terminal.process.wait()
