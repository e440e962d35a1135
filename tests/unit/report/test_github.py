"""GitHub Actions: the annotation, the summary, and that nothing of the job's becomes a command of the runner's."""

from __future__ import annotations

import dataclasses
import io
import os
import re

import pytest
from sample_diagnosis import FILE, SAMPLE

from hangdoc.model.diagnosis import Diagnosis
from hangdoc.report import github
from hangdoc.report.terminal import render_for

ACTIONS = {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": "/home/me"}


def told(diagnosis, environment):
    said = []
    github.tell(diagnosis, said.append, environment)
    return "".join(said)


def test_a_hang_is_an_annotation_at_the_condition():
    assert told(SAMPLE, ACTIONS) == (
        "::error file=project/train.py,line=57,title=hangdoc HD102 uneven-iterations::"
        "Rank 2 left the training loop early; ranks 0, 1 and 3 wait for it in backward().\n"
    )


def test_without_a_condition_it_is_at_the_culprit():
    sides = dataclasses.replace(SAMPLE.divergence, branch=None)
    assert f"file={FILE},line=88," in told(dataclasses.replace(SAMPLE, divergence=sides), {"GITHUB_ACTIONS": "true"})
    nowhere = Diagnosis("hang", "Nobody was seen.")
    assert told(nowhere, ACTIONS) == "::error title=hangdoc::Nobody was seen.\n"


@pytest.mark.parametrize("environment", [{}, {"GITHUB_ACTIONS": "false"}])
def test_elsewhere_nothing_is_said(environment, tmp_path):
    summary = tmp_path / "summary"
    assert told(SAMPLE, {**environment, "GITHUB_STEP_SUMMARY": str(summary)}) == ""
    assert not summary.exists()


@pytest.mark.parametrize("outcome", ["slow", "healthy", "blind"])
def test_only_what_failed_is_told(outcome):
    assert told(dataclasses.replace(SAMPLE, outcome=outcome), ACTIONS) == ""


def test_the_summary_gets_the_report_below_what_it_has(tmp_path):
    summary = tmp_path / "summary"
    summary.write_text("before\n")
    told(SAMPLE, {**ACTIONS, "GITHUB_STEP_SUMMARY": str(summary)})
    assert summary.read_text().startswith("before\n### ✖ hang\n")
    assert "left the training loop early" in summary.read_text()


def test_a_summary_that_cannot_be_written_costs_one_line(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "full").write_bytes(b"x" * (1 << 20))
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for name in ("pipe", "full", "link", "none/summary"):
        said = told(SAMPLE, {**ACTIONS, "GITHUB_STEP_SUMMARY": str(tmp_path / name)})
        assert said.count("\n") == 2
        assert "\nhangdoc: no summary of this step: " in said
    assert not (tmp_path / "target").exists()


HOSTILE = "x\n::stop-commands::y\r::add-mask::z,line=1::%0A##[error]w"


def test_the_job_gives_the_runner_no_command():
    branch = dataclasses.replace(SAMPLE.divergence.branch, file=f"/home/me/{HOSTILE}.py")
    divergence = dataclasses.replace(SAMPLE.divergence, branch=branch)
    diagnosis = dataclasses.replace(SAMPLE, verdict=HOSTILE, divergence=divergence)
    said = told(diagnosis, ACTIONS)
    assert said.count("\n") == 1
    properties, _, message = said.removeprefix("::error ").partition("::")
    assert [each.partition("=")[0] for each in properties.split(",")] == ["file", "line", "title"]
    assert ":" not in properties
    assert "%0A" not in message.replace("%250A", "")


def test_no_line_of_a_report_begins_like_a_command():
    spaced = dataclasses.replace(SAMPLE, verdict="::add-mask::x ##[group]", why=" ".join(["::warning::x"] * 60))
    for color in ("never", "always"):
        text = render_for(io.StringIO(), spaced, ACTIONS, color=color)
        plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
        assert not re.search(r"^\s*::", plain, re.MULTILINE)
        assert "##[" not in plain
    assert "::warning::x" in render_for(io.StringIO(), spaced, {})
