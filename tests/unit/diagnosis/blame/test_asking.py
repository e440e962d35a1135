"""A question at a terminal waits for a person; one on a pipe can never be answered, however the job was looked at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from asking_job import ARRIVES, ASKS, READS, job

from hangdoc import api
from hangdoc.announce import Announcer
from hangdoc.diagnosis import diagnose
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import JobSnapshot
from hangdoc.sidecar.options import WatchOptions
from hangdoc.sidecar.run_directory import RunDirectory


def verdict_of(diagnosis: Diagnosis) -> tuple[str, str | None, tuple[int, ...]]:
    return diagnosis.outcome, diagnosis.cause.code if diagnosis.cause else None, diagnosis.culprits


@pytest.mark.parametrize("mode", ["watch", "attach"])
@pytest.mark.parametrize("target", ["pipe:[77]", "socket:[78]"])
def test_a_question_without_a_terminal_is_a_hang_at_once(mode: str, target: str) -> None:
    diagnosis = diagnose(job(ASKS, ARRIVES, target=target, mode=mode))
    assert verdict_of(diagnosis) == ("hang", "HD405", (0,))
    assert f"its standard input is a {target.partition(':')[0]}, not a terminal" in diagnosis.why
    assert diagnosis.confidence == "likely"


@pytest.mark.parametrize("mode", ["watch", "attach"])
def test_a_question_at_a_terminal_waits_for_a_person(mode: str) -> None:
    diagnosis = diagnose(job(ASKS, ARRIVES, target="/dev/pts/3", mode=mode))
    assert verdict_of(diagnosis) == ("slow", "HD405", (0,))
    assert "waiting for a person" in diagnosis.verdict


@pytest.mark.parametrize("mode", ["watch", "attach"])
@pytest.mark.parametrize(("target", "outcome"), [("pipe:[77]", "hang"), ("/dev/pts/3", "slow")])
def test_all_ranks_ask(mode: str, target: str, outcome: str) -> None:
    diagnosis = diagnose(job(ASKS, ASKS, target=target, mode=mode))
    assert verdict_of(diagnosis) == (outcome, "HD405", (0, 1))
    assert "ended" not in diagnosis.verdict


def test_who_reads_data_from_a_pipe_may_have_to_wait_for_it() -> None:
    assert diagnose(job(READS, ARRIVES, target="pipe:[77]")).outcome == "slow"


def test_a_library_asks() -> None:
    frozen = job(READS, ARRIVES, target="pipe:[77]")
    library = "/venv/lib/python3.11/site-packages/click/termui.py"

    def below(function: str) -> JobSnapshot:
        process = frozen.ranks[0].process
        assert process is not None
        looks = tuple(
            replace(
                look, threads=tuple(replace(t, frames=(Frame(library, 9, function), *t.frames)) for t in look.threads)
            )
            for look in process.looks
        )
        asks = replace(frozen.ranks[0], process=replace(process, looks=looks))
        return replace(frozen, ranks=(asks, frozen.ranks[1]))

    assert verdict_of(diagnose(below("prompt.<locals>.prompt_func"))) == ("hang", "HD405", (0,))
    assert diagnose(below("get_text_stream")).outcome == "slow"


def test_slow_says_when_it_will_be_a_hang() -> None:
    diagnosis = diagnose(job(READS, ARRIVES, target="pipe:[77]"))
    assert diagnosis.verdict.endswith("If nothing moves, it counts as a hang in 9 min 55 s (--give-up-after).")
    late = diagnose(job(READS, ARRIVES, target="pipe:[77]", stalled_for=600.0))
    assert (late.outcome, "--give-up-after" in late.verdict) == ("hang", False)
    never = diagnose(replace(job(READS, ARRIVES, target="pipe:[77]"), give_up_after=float("inf")))
    assert (never.outcome, "--give-up-after" in never.verdict) == ("slow", False)


def test_slow_takes_the_place_of_no_better_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.txt"
    announcer = Announcer(("train",), WatchOptions(reports=(report,)), RunDirectory(tmp_path / "run"))
    slow, hang = (job(line, ARRIVES, target="pipe:[77]") for line in (READS, ASKS))
    assert announcer.on_stall(slow, 1) == "slow"
    assert "slow" in report.read_text()
    assert announcer.on_stall(hang, 2) == "hang"
    assert "hang · 2 ranks" in report.read_text()
    assert announcer.on_stall(slow, 3) == "slow"
    assert "hang · 2 ranks" in report.read_text()
    assert api.load(tmp_path / "run" / "stall-3.hangdoc") == slow
