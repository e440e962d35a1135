"""Functions of many thousand conditions: they cost little, and the report says that they were not read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.made_calls import made_calls

from hangdoc import api
from hangdoc.model.encode import snapshot_to_bytes
from hangdoc.model.snapshot import JobSnapshot

SHAPES = {
    "continue": "  if a:\n   continue\n",
    "break": "  if a:break\n",
    "count": "  if a:a+=1\n",
    "handler": "  try:f()\n  except E:return\n",
}
SECONDS, MEGABYTES = 6.0, 300
"""Of processor time and memory, of a process that has to import hangdoc too: ten times what a small job takes."""


def job(shape: str, times: int) -> JobSnapshot:
    text = f"\ndef main():\n for step in loader:\n{SHAPES[shape] * times}"
    line = text.count("\n") + 1
    text += "  if a:\n   dist.all_reduce(t)\n  dist.barrier()\n"
    barrier = ("barrier", [(line + 2, "main")])
    calls = {0: [barrier, ("all_reduce", [(line + 1, "main")])], 1: [barrier] * 2, 2: [barrier] * 2}
    return made_calls(text, calls, {rank: {"main": {"a": str(rank)}} for rank in calls})


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("times", [190, 10_000, 100_000])
def test_time_and_memory_are_bounded(shape: str, times: int, tmp_path: Path) -> None:
    path = tmp_path / "a.hangdoc"
    path.write_bytes(snapshot_to_bytes(job(shape, times)))
    line = [sys.executable, "-m", "hangdoc", "diagnose", "--json", str(path)]
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(line, stdout=out)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 1
    assert used.ru_utime + used.ru_stime < SECONDS
    assert used.ru_maxrss / 1024 < MEGABYTES


@pytest.mark.parametrize("times", [500, 10_000, 100_000])
def test_what_was_not_read_is_said(times: int) -> None:
    found = api.diagnose(job("continue", times))
    assert found.culprits == (0,)
    (note,) = [each for each in found.unavailable if each.what.startswith("source of")]
    assert note.what.endswith("train.py:2") or note.what.endswith("train.py:1")
    assert note.remedy


def test_what_was_read_is_not_said() -> None:
    assert not [each for each in api.diagnose(job("continue", 190)).unavailable if each.what.startswith("source of")]
