"""What a watch prints of another host's verdict."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import case

from hangdoc import api
from hangdoc.announce import Announcer
from hangdoc.sidecar.listener import Conclusion
from hangdoc.sidecar.options import WatchOptions
from hangdoc.sidecar.run_directory import RunDirectory

HEARD = Conclusion("hang", "Rank 3 alone calls barrier.", "/runs/x/stall-1.hangdoc", may_end=True)


def test_of_an_aborted_job_another_hosts_verdict_is_the_last_on_the_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    announcer = Announcer(("train",), WatchOptions(on_hang="abort"), RunDirectory(tmp_path / "run"))
    announcer.on_verdict(HEARD, "hosta", 2)
    told = capsys.readouterr().err
    announcer.on_abort(())
    again = capsys.readouterr().err
    assert again == f"hangdoc: ended the hung job, as --on-hang abort asks\n{told}"
    assert "Rank 3 alone calls barrier." in told
    assert told.endswith("on that host: hangdoc diagnose /runs/x/stall-1.hangdoc\n")


def test_what_another_host_says_is_shown_and_not_obeyed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    announcer = Announcer(("train",), WatchOptions(), RunDirectory(tmp_path / "run"))
    announcer.on_verdict(Conclusion("hang", "Rank \x1b[2J3\nhangdoc: fine", "/x\x1b]0;y\x07"), "host\x1b[1m\n", 2)
    told = capsys.readouterr().err
    assert all(character.isprintable() or character == "\n" for character in told)
    assert "\nhangdoc: fine" not in told


def test_a_restart_by_the_launcher_is_one_line_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_directory = RunDirectory(tmp_path / "run")
    announcer = Announcer(("torchrun",), WatchOptions(), run_directory)
    announcer.on_workers_restarted(api.load(case("wrapped_errors")), 1, 3)
    announcer.on_workers_restarted(None, 2, None)
    assert capsys.readouterr().err.splitlines() == [
        "hangdoc: rank 1 ended with StepFailed, raised from ValueError at p9_crash.py:18 __getitem__(); "
        "torchrun restarted the workers, 1 of 3",
        "hangdoc: none of the ranks here had failed; torchrun restarted the workers",
    ]
    assert not (tmp_path / "run").exists(), "the job may end well yet"
