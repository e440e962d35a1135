"""Functions of many thousand conditions: they cost little, and the report says that they were not read."""

from __future__ import annotations

import json
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
MEASURED = """import json, resource, subprocess, sys
status = subprocess.call(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([status, used.ru_utime + used.ru_stime, used.ru_maxrss]), file=sys.stderr)
"""
"""Runs a command and prints its status and use. A small process does it: the kernel counts what the parent has at the
start as the child's memory, and a worker of pytest grows."""


def job(shape: str, times: int) -> JobSnapshot:
    text = f"\ndef main():\n for step in loader:\n{SHAPES[shape] * times}"
    line = text.count("\n") + 1
    text += "  if a:\n   dist.all_reduce(t)\n  dist.barrier()\n"
    barrier = ("barrier", [(line + 2, "main")])
    calls = {0: [barrier, ("all_reduce", [(line + 1, "main")])], 1: [barrier] * 2, 2: [barrier] * 2}
    return made_calls(text, calls, {rank: {"main": {"a": str(rank)}} for rank in calls})


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("times", [190, 100_000])
def test_time_and_memory_are_bounded(shape: str, times: int, tmp_path: Path) -> None:
    path = tmp_path / "a.hangdoc"
    path.write_bytes(snapshot_to_bytes(job(shape, times)))
    line = [sys.executable, "-c", MEASURED, sys.executable, "-m", "hangdoc", "diagnose", "--json", str(path)]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    status, seconds, kilobytes = json.loads(done.stderr.splitlines()[-1])
    assert status == 1
    assert seconds < SECONDS
    assert kilobytes / 1024 < MEGABYTES


@pytest.mark.parametrize("times", [500, 10_000, 100_000])
def test_what_was_not_read_is_said(times: int) -> None:
    found = api.diagnose(job("continue", times))
    assert found.culprits == (0,)
    (note,) = [each for each in found.unavailable if each.what.startswith("source of")]
    assert note.what.endswith("train.py:2") or note.what.endswith("train.py:1")
    assert note.remedy


def test_what_was_read_is_not_said() -> None:
    assert not [each for each in api.diagnose(job("continue", 190)).unavailable if each.what.startswith("source of")]
