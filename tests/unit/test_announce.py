"""What a watch prints of another host's verdict."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import case

from hangdoc import api
from hangdoc.announce import Announcer
from hangdoc.model.codec import load_snapshot
from hangdoc.model.lateness import lateness
from hangdoc.model.snapshot import JobSnapshot
from hangdoc.report import page
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


def test_below_the_tracebacks_of_an_interrupted_job_the_verdict_stands_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    announcer = Announcer(("train",), WatchOptions(), RunDirectory(tmp_path / "run"))
    announcer.on_verdict(HEARD, "hosta", 2)
    told = capsys.readouterr().err
    announcer.on_given_up()
    assert capsys.readouterr().err == told


@pytest.mark.xfail(strict=True, reason="told by a rule that is gone, and by no general mechanism yet")
def test_a_failure_that_was_told_while_the_launcher_ran_stands_below_its_traceback_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crashed = load_snapshot(case("feeder_crash"))
    announcer = Announcer(("train",), WatchOptions(), RunDirectory(tmp_path / "run"))
    assert announcer.on_stall(crashed, 1) == "crashed"
    capsys.readouterr()
    announcer.on_end(crashed)
    again = capsys.readouterr().err
    assert "hangdoc ✖ crashed" in again
    assert [label for label in ("  why  ", "  fix  ", "  sure?  ", "│") if label not in again] == []
    assert again.endswith(f"hangdoc: show it again: hangdoc diagnose {tmp_path}/run/end.hangdoc\n")
    announcer.close()


def test_what_another_host_says_is_shown_and_not_obeyed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    announcer = Announcer(("train",), WatchOptions(), RunDirectory(tmp_path / "run"))
    announcer.on_verdict(Conclusion("hang", "Rank \x1b[2J3\nhangdoc: fine", "/x\x1b]0;y\x07"), "host\x1b[1m\n", 2)
    told = capsys.readouterr().err
    assert all(character.isprintable() or character == "\n" for character in told)
    assert "\nhangdoc: fine" not in told


def test_another_hosts_verdict_comes_with_its_fix_and_once_though_its_seconds_grow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    announcer = Announcer(("train",), WatchOptions(), RunDirectory(tmp_path / "run"))
    for seconds in (31, 36):
        said = Conclusion(
            "slow", f"Rank 3 has worked for {seconds} s.", fix="Wait\x1b[2J.", news="('slow', (3,), None)"
        )
        announcer.on_verdict(said, "hosta", 2)
    told = capsys.readouterr().err
    assert "Rank 3 has worked for 31 s." in told
    assert "36 s" not in told
    assert "\n  fix        Wait\\x1b[2J.\n" in told


def test_what_was_announced_of_a_slow_job_is_taken_back_when_the_time_is_counted_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And of nothing else: neither of a hang, nor of a job of which nobody has been told anything."""
    announcer = Announcer(("train",), WatchOptions(), RunDirectory(tmp_path / "run"))
    said = {}
    for name, outcome in (("uneven_batches", "hang"), ("computes_beside_messages_left_to_the_background", "slow")):
        announcer.on_change(20.0)
        assert announcer.on_stall(load_snapshot(case(name)), 1) == outcome
        capsys.readouterr()
        announcer.on_change(20.0)
        said[outcome] = capsys.readouterr().err
        announcer.on_resume(30.0)
        capsys.readouterr()
    after = "after 20 s without progress"
    expected = f"hangdoc: a rank or a port of the job has come or gone {after}: that time is counted anew\n"
    assert said == {"hang": "", "slow": expected}


@pytest.fixture
def stalled() -> JobSnapshot:
    return load_snapshot(case("uneven_batches"))


def test_a_stall_is_kept_in_every_format_and_older_runs_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stalled: JobSnapshot
) -> None:
    runs = tmp_path / ".hangdoc"
    for number in (1, 2):
        old = RunDirectory(runs / f"2025010{number}-000000-1-abcdef")
        old.make()
        old.close()
    current = RunDirectory(runs / "20260101-000000-1-abcdef")
    announcer = Announcer(("train",), WatchOptions(keep=2), current)
    assert announcer.on_stall(stalled, 1) == "hang"
    assert sorted(path.name for path in runs.glob("20*")) == ["20250102-000000-1-abcdef", current.path.name]
    kept = {path.suffix: path for path in current.path.glob("stall-1.*")}
    assert kept.keys() == {".hangdoc", ".json", ".txt", ".html"}
    told, whole = capsys.readouterr().err, kept[".txt"].read_text(encoding="utf-8")
    assert "more with -v" in told
    assert "<module>  uneven_batches.py" in whole
    assert "<module>  uneven_batches.py" not in told
    announcer.close()


def test_a_watch_reports_in_colors_and_in_full_as_it_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stalled: JobSnapshot
) -> None:
    options = WatchOptions(color="always", verbose=True)
    Announcer(("train",), options, RunDirectory(tmp_path / "run")).on_stall(stalled, 1)
    told = capsys.readouterr().err
    assert "\x1b[1mhangdoc\x1b[0m" in told
    assert "<module>  uneven_batches.py" in told


def test_the_page_of_a_stall_is_made_once_for_all_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stalled: JobSnapshot
) -> None:
    made = []
    monkeypatch.setattr(page, "lateness", lambda job: made.append(job) or lateness(job))
    reports = (tmp_path / "a.html", tmp_path / "b.html", tmp_path / "c.md")
    Announcer(("train",), WatchOptions(reports=reports), RunDirectory(tmp_path / "run")).on_stall(stalled, 1)
    assert len(made) == 1
    kept = (tmp_path / "run" / "stall-1.html").read_text()
    assert [path.read_text() == kept for path in reports] == [True, True, False]


def test_github_is_told_once_of_one_hang(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    stalled: JobSnapshot,
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    announcer = Announcer(("train",), WatchOptions(), RunDirectory(tmp_path / "run"))
    for _ in range(2):
        announcer.on_stall(stalled, 1)
    assert capsys.readouterr().err.count("\n::error file=/job/scenarios/uneven_batches.py,line=41,") == 1
    assert (tmp_path / "summary.md").read_text(encoding="utf-8").count("### ✖ hang") == 1


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


def test_why_another_hosts_verdict_ends_nothing_is_said_once_for_each_stall(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    announcer = Announcer(("train",), WatchOptions(on_hang="abort"), RunDirectory(tmp_path / "run"))
    why = announcer.doubt(load_snapshot(case("straggler")))
    assert capsys.readouterr().err == ""
    line = f"hangdoc: ends nothing yet, although --on-hang abort asks: {why}\n"
    for _ in range(2):
        announcer.on_spared(why)
        announcer.on_spared(why)
        assert capsys.readouterr().err == line
        announcer.on_resume(3.0)
