"""A folder with the dumps of several jobs: each is diagnosed, and the worst comes first, whichever is the newest."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from device_dumps import folder
from jsonschema import Draft202012Validator
from published_schema import SCHEMA, faults

from hangdoc import api
from hangdoc.model.codec import snapshot_from_bytes
from hangdoc.model.document import schema
from hangdoc.model.encode import snapshot_to_bytes
from hangdoc.report import markdown, page
from hangdoc.report.terminal import render

LOOP = "all_reduce all_reduce all_reduce"
DONE = dict.fromkeys(range(4), LOOP)
HUNG = {0: f"{LOOP} barrier*", 1: f"{LOOP} barrier*", 2: LOOP}
"""Rank 3's dump is missing."""


def replicas(where: Path, *jobs: dict[int, str], timeout: float = 600.0) -> Path:
    """The dumps of each job in a folder of its own, the later ones newer by 10 s."""
    for number, ranks in enumerate(jobs):
        (where / f"replica_{number}").mkdir()
        ahead = dict.fromkeys(ranks, 10.0 * number)
        folder(where / f"replica_{number}", ranks, size=4, after=650.0 + 10 * number, timeout=timeout, ahead=ahead)
    return where


@pytest.mark.parametrize("hung", [0, 1])
def test_the_replica_that_hangs_comes_first(tmp_path: Path, hung: int) -> None:
    found = api.diagnose(replicas(tmp_path, *([HUNG, DONE] if hung == 0 else [DONE, HUNG])))
    assert (found.outcome, found.culprits, found.job) == ("hang", (2,), f"replica_{hung}")
    (other,) = found.others
    assert (other.outcome, other.job) == ("healthy", f"replica_{1 - hung}")


def test_a_replica_without_all_dumps_is_not_healthy_because_another_is(tmp_path: Path) -> None:
    found = api.diagnose(replicas(tmp_path, {0: LOOP, 1: LOOP, 2: LOOP}, DONE))
    assert (found.outcome, found.job, found.others[0].outcome) == ("blind", "replica_0", "healthy")
    assert "rank 3's dump is missing" in found.verdict


def test_an_earlier_run_that_hung_comes_before_the_run_after_it(tmp_path: Path) -> None:
    for run, begun, ranks in (("first", 0.0, {**HUNG, 3: f"{LOOP} barrier*"}), ("second", 4000.0, DONE)):
        (tmp_path / run).mkdir()
        folder(tmp_path / run, ranks, after=begun + 650.0, ahead=dict.fromkeys(ranks, begun))
    found = api.diagnose(tmp_path)
    assert (found.outcome, found.culprits, found.job) == ("hang", (2,), "first")
    assert [each.job for each in found.others] == ["second"]


def test_one_job_is_reported_as_it_always_was(tmp_path: Path) -> None:
    found = api.diagnose(folder(tmp_path, HUNG, size=4))
    assert not found.others and not found.job
    assert not {"job", "others"} & json.loads(found.to_json()).keys()


def test_every_report_says_that_there_are_several(tmp_path: Path) -> None:
    found = api.diagnose(replicas(tmp_path, HUNG, DONE))
    said = "2 jobs left dumps here, the worst first: replica_0 hang, replica_1 healthy."
    text = render(found)
    assert text.startswith(said) and text.index("✖ hang · replica_0") < text.index("✔ healthy · replica_1")
    assert said in markdown.render(found).replace("\\", "") and "### ✔ healthy" in markdown.render(found)
    assert said in page.render(found)
    document = json.loads(found.to_json())
    assert Draft202012Validator(schema()).is_valid(document)
    (other,) = document["others"]
    assert (document["job"], other["job"], other["outcome"]) == ("replica_0", "replica_1", "healthy")
    assert faults(other, SCHEMA | {"job": str}) == []


def test_the_command_ends_with_the_status_of_the_worst(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hangdoc", "diagnose", str(replicas(tmp_path, HUNG, DONE))]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1 and ended.stdout.startswith("2 jobs left dumps here")


def test_a_saved_folder_keeps_all_its_jobs(tmp_path: Path) -> None:
    job = api.load(replicas(tmp_path, HUNG, DONE))
    again = snapshot_from_bytes(snapshot_to_bytes(job))
    assert [each.run_id for each in again.others] == [each.run_id for each in job.others]
    assert api.diagnose(again) == api.diagnose(job)
