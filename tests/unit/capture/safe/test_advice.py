"""What attach advises: commands that work where they are pasted, and nothing that cannot be done any more."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from asking_job import ARRIVES, job
from waiting_rank import state, thread, why, worker

from hangdoc.capture import host
from hangdoc.capture.find.target import RankTarget
from hangdoc.capture.host import capture_job
from hangdoc.capture.inject import injection, safety
from hangdoc.capture.inject.safety import refused
from hangdoc.capture.read import stacks
from hangdoc.capture.request import CaptureOptions, CaptureRequest
from hangdoc.capture.safe import advice
from hangdoc.diagnosis import diagnose
from hangdoc.model.process import ProcessState
from hangdoc.model.snapshot import JobSnapshot, Unavailable

PID = os.getpid()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    found = tmp_path / "a venv" / "hangdoc"
    found.parent.mkdir()
    found.touch()
    found.chmod(stat.S_IRWXU)
    return found


def test_behind_sudo_hangdoc_has_its_absolute_path(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(script)])
    assert advice.ourselves() == f"'{script}'"
    assert advice.as_root() == f"run hangdoc as root: `sudo '{script}' …`"
    monkeypatch.chdir(script.parent)
    monkeypatch.setattr(sys, "argv", ["./hangdoc"])
    assert advice.ourselves() == f"'{script}'"
    monkeypatch.setattr(sys, "argv", ["/nowhere/hangdoc"])
    monkeypatch.setattr(sys, "executable", str(script.parent / "python"))
    assert advice.ourselves() == f"'{script}'"
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    assert advice.ourselves() == "/usr/bin/python3 -m hangdoc"


def test_who_came_by_sudo_has_to_come_by_sudo_again(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.setenv("SUDO_UID", "1000")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert advice.once_more("attach 7") == f"sudo '{script}' attach 7"
    monkeypatch.delenv("SUDO_UID")
    monkeypatch.setenv("PATH", str(script.parent))
    assert advice.once_more("attach 7") == "hangdoc attach 7"
    monkeypatch.setenv("PATH", "/nowhere")
    assert advice.once_more("attach 7") == f"'{script}' attach 7"


Looks = Callable[..., JobSnapshot]


@pytest.fixture
def attach(monkeypatch: pytest.MonkeyPatch) -> Looks:
    """Attach to ourselves, as if we were a rank that waits as ``main`` and ``other`` say."""

    def take(main: ProcessState, *, gdb: str | None = "/usr/bin/gdb", shut: Unavailable | None = None) -> JobSnapshot:
        monkeypatch.setattr(stacks, "dump", lambda pids, **more: {})
        monkeypatch.setattr(host, "look_at", lambda *subjects, **more: host.Look({PID: main}, {}))
        monkeypatch.setattr(injection, "find_gdb", lambda: gdb)
        monkeypatch.setattr(safety, "from_outside", lambda pid: shut)
        target = RankTarget(0, PID, "environment", 2)
        return capture_job(CaptureRequest([target], options=CaptureOptions(gap=0.0)))

    return take


def remedy(snapshot: JobSnapshot) -> str:
    (note,) = [item for item in snapshot.unavailable if item.what == "journal"]
    assert note.rank == 0
    return note.remedy


def test_an_injection_is_advised_where_it_would_be_safe(attach: Looks) -> None:
    assert why(state(), state()) == ""
    told = remedy(attach(state()))
    assert f"attach {PID} --inject`" in told
    assert "watch" not in told


def test_else_the_next_run_under_watch(attach: Looks) -> None:
    native = replace(worker(), syscall="0 0x0 0x0 0x0 0x0 0x0 0x0")
    waits = attach(state())
    assert "--inject" in remedy(waits)
    for snapshot in (
        attach(state(), gdb=None),
        attach(state(), shut=refused("Python 3.14 is newer than any it was measured with")),
        attach(state(thread(owns_gil=True))),
        attach(state(thread(), native)),
        attach(state(tracer=4711)),
    ):
        assert remedy(snapshot) == advice.NEXT_TIME
        assert advice.NEXT_TIME.startswith("next time, ")


def test_the_diagnosis_repeats_what_the_capture_found_out() -> None:
    arrived = job(ARRIVES, ARRIVES, target="", mode="attach")
    assert "watch" not in diagnose(arrived).fix
    for advised in ("`hangdoc attach 7 --inject` reads it", advice.NEXT_TIME):
        notes = tuple(Unavailable("journal", "there is no probe in this process", advised, rank) for rank in (0, 1))
        assert diagnose(replace(arrived, unavailable=notes)).fix == f"{advised[:1].upper()}{advised[1:]}."
