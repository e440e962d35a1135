"""Lists on narrow terminals: no line is too long, and no script's name is cut."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from hangdoc.model.summary import JobSummary
from hangdoc.report.listing import render
from hangdoc.report.table import lay_out

LONG = (
    "/usr/bin/torchrun",
    "--nnodes",
    "2",
    "--nproc-per-node",
    "8",
    "/home/me/project/pretrain_llama.py",
    "--lr",
    "3e-4",
)
JOBS = [
    JobSummary(4711, "torchrun", LONG, "me", 0.0, tuple(range(8))),
    JobSummary(815, "spawn", ("python3", "train.py"), "somebody", 0.0, (0, 1), (2,), 2),
    JobSummary(99, "mpirun", ("mpirun", "-n", "4", "./solver", "x" * 90), "other", 0.0, (), readable=False),
    JobSummary(12, "torchrun", ("/venv/bin/python", "/venv/bin/torchrun", *LONG[1:]), "me", 0.0, (0, 1)),
]  # fmt: skip


@pytest.mark.parametrize("width", [40, 50, 60, 80, 100, 200])
def test_the_script_is_whole_at_any_width(width: int) -> None:
    text = render(JOBS, 95.0, width)
    assert text.count("pretrain_llama.py") == 2
    assert "train.py" in text.replace("pretrain_llama.py", "")
    assert all(job_line in text for job_line in ("4711", "815", "99", "12"))
    if width >= 60:
        assert max(map(cell_len, text.splitlines())) <= width


def test_elsewhere_each_job_is_one_line() -> None:
    lines = render(JOBS, 95.0).splitlines()
    assert lines[0].split() == ["PID", "LAUNCHER", "RANKS", "STATE", "SINCE", "USER", "COMMAND"]
    assert len(lines) == 1 + len(JOBS) + 2
    assert lines[4].endswith("  torchrun … pretrain_llama.py --lr 3e-4")


def test_names_of_a_job_command_no_terminal() -> None:
    job = JobSummary(1, "x\x1b[2J", ("python", "a\x1b]0;t\x07.py"), "m\ne", 0.0, (0,))
    for width in (None, 60, 120):
        text = render([job], 1.0, width)
        assert all(character.isprintable() or character == "\n" for character in text)


def test_the_last_column_wraps_and_no_other() -> None:
    rows = [("HD102", "uneven-iterations", "A loop ran a different number of times on some ranks")] * 2
    text = lay_out(rows, 50)
    assert max(map(len, text.splitlines())) <= 50
    assert text.count("uneven-iterations") == 2
    assert len(lay_out(rows, None).splitlines()) == 2
    assert lay_out([], 50) == ""
