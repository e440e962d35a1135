"""What the doctor says of the job's Python, whatever that Python does."""

import os
import time
from pathlib import Path

import pytest

from hangdoc.doctor import job
from hangdoc.doctor.check import BLOCKED, LIMITED, OK, Check


def asked(folder: Path, script: str) -> list[Check]:
    """The checks, with a program in place of the job's Python."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return list(job.python(str(program), dict(os.environ)))


def test_each_answer_is_a_check(tmp_path):
    checks = asked(tmp_path, "echo noise of the site; echo hangdoc-doctor 2.9.1 True True 3.12")
    assert [(check.name, check.state) for check in checks] == [
        ("torch", OK),
        ("probe", OK),
        ("flight recorder", OK),
        ("injection", OK),
    ]


def test_a_python_without_torch_is_named_with_its_last_line(tmp_path):
    (check,) = asked(tmp_path, "echo Traceback >&2; echo no module named torch >&2; exit 1")
    assert check.state == LIMITED
    assert check.finding.endswith("cannot import torch: no module named torch")


def test_a_python_that_never_answers_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(job, "IMPORT_SECONDS", 1.0)
    began = time.monotonic()
    (check,) = asked(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 60")
    assert time.monotonic() - began < 30
    assert "took longer than 1 s" in check.finding
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_a_python_that_is_not_there_blocks(tmp_path):
    (check,) = job.python(str(tmp_path / "none"), dict(os.environ))
    assert (check.name, check.state) == ("torch", BLOCKED)


@pytest.mark.parametrize("words", ["", "hangdoc-doctor 2.9.1 True"])
def test_an_answer_that_is_cut_short_is_none(tmp_path, words):
    (check,) = asked(tmp_path, f"echo '{words}'")
    assert "cannot import torch: status 0" in check.finding
