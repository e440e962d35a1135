"""What a session that does not ask for the plugin gets, and what one is told that asks for too much."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import inner_pytest
import pytest

from hangdoc.errors import UsageError
from hangdoc.model.kinds import Outcome
from hangdoc.pytest_plugin import call_function, job, session
from hangdoc.pytest_plugin.job import RunJob
from hangdoc.pytest_plugin.session import Session, own_children, patience
from hangdoc.sidecar.launch import PROBE_PATH

LOOK = f"""
import json, os, signal, sys

def test_looks():
    watched = ("hangdoc", "torch", "pydantic", "rich", "hangdoc_probe")
    ours = [name for name in sys.modules if name.split(".")[0] in watched]
    handled = signal.getsignal({int(session.SIGNAL)}) is not signal.SIG_DFL
    names = [name for name in os.environ if name.startswith("HANGDOC_")]
    with open("seen.json", "w") as file:
        json.dump([sorted(ours), handled, names, os.environ.get("PYTHONPATH"), sys.path], file)
"""


def seen(folder: Path, *options: str) -> list[Any]:
    done = inner_pytest.run(folder, LOOK, *options)
    assert "1 passed" in done.output, done.output
    found: list[Any] = json.loads((folder / "seen.json").read_text())
    return found


def test_without_the_option_nothing_is_imported_or_changed(tmp_path: Path) -> None:
    modules, handled, names, python_path, path = seen(tmp_path)
    assert modules == ["hangdoc", "hangdoc.pytest_plugin", "hangdoc.pytest_plugin.hooks"]
    assert (handled, names, python_path) == (False, [], os.environ.get("PYTHONPATH"))
    assert not any("probe" in entry for entry in path)


def test_with_the_option_children_find_the_helper_and_torch_stays_away(tmp_path: Path) -> None:
    modules, handled, names, python_path, path = seen(tmp_path, "--hangdoc=30")
    assert {"torch", "pydantic", "rich"}.isdisjoint(modules)
    assert (handled, sorted(names)) == (True, ["HANGDOC_NO_RANK", "HANGDOC_PROBE"])
    assert python_path.split(os.pathsep)[0] == path[-1] == str(PROBE_PATH)
    assert not (tmp_path / ".hangdoc").exists()


def test_it_is_what_pytest_loads() -> None:
    from importlib.metadata import entry_points

    (found,) = (entry for entry in entry_points(group="pytest11") if entry.value.startswith("hangdoc"))
    assert (found.name, found.value) == ("hangdoc", "hangdoc.pytest_plugin.hooks")


@pytest.mark.parametrize("seconds", ["soon", "-1", "nan", "inf", "0.01"])
def test_seconds_that_are_none_are_refused(seconds: str) -> None:
    with pytest.raises(pytest.UsageError, match="--hangdoc=30"):
        patience(seconds)


@pytest.mark.parametrize(("seconds", "found"), [("30", 30.0), (1.5, 1.5), (0, None), ("0", None), (None, None)])
def test_seconds(seconds: object, found: float | None) -> None:
    assert patience(seconds) == found


def test_a_bad_option_is_said_before_any_test(tmp_path: Path) -> None:
    done = inner_pytest.run(tmp_path, LOOK, "--hangdoc=soon")
    assert done.status == pytest.ExitCode.USAGE_ERROR
    assert "hangdoc: 'soon' is no number of seconds" in done.output
    assert "Traceback" not in done.output


def test_a_rank_of_a_job_is_not_watched_by_itself(tmp_path: Path) -> None:
    done = inner_pytest.run(tmp_path, LOOK, "--hangdoc=30", env={"RANK": "1", "WORLD_SIZE": "2"})
    assert "hangdoc: off, because this pytest is rank 1 of 2 itself" in done.output
    assert "1 passed" in done.output


def test_under_a_watch_it_steps_aside(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(LOOK)
    line = [sys.executable, "-m", "hangdoc", "watch", "--quiet", "--", sys.executable, "-m", "pytest", "--hangdoc=30"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HANGDOC_", "PYTEST_"))}
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stdout
    assert "watches this pytest already" in done.stdout


def test_the_tests_that_the_guide_names_are_there() -> None:
    page = resources.files("hangdoc").joinpath("guide", "pytest.md").read_text(encoding="utf-8")
    named = re.findall(r"^<!-- run by (\S+)::(\w+) -->$", page, re.MULTILINE)
    assert len(named) == 3
    root = Path(__file__).parents[3]
    assert [test for file, test in named if f"\ndef {test}(" not in (root / file).read_text()] == []


class Recorded:
    """A link that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.closed = False

    def send(self, **message: Any) -> bool:
        self.sent.append(message)
        return True

    def receive(self, _seconds: float = 0.0) -> list[dict[str, Any]]:
        return []


def test_a_time_out_that_comes_sooner_hurries_the_look(request: pytest.FixtureRequest) -> None:
    item = request.node
    for timeout, expected in ((100.0, 30.0), (30.0, 22.0), (10.0, 5.0)):
        watched, link = Session(30.0), Recorded()
        watched._link, watched._item = link, item  # type: ignore[assignment]
        watched.pytest_timeout_set_timer(item, SimpleNamespace(timeout=timeout))
        assert [message["patience"] for message in link.sent] == [expected]


def test_what_a_wider_fixture_starts_is_spared() -> None:
    watched, link = Session(30.0), Recorded()
    watched._link, watched._item = link, object()  # type: ignore[assignment]
    started = []
    for scope in ("session", "function"):
        setting_up = watched.pytest_fixture_setup(SimpleNamespace(scope=scope))  # type: ignore[arg-type]
        next(setting_up)
        started.append(subprocess.Popen(["sleep", "60"]))
        with pytest.raises(StopIteration):
            setting_up.send(None)
    try:
        assert {process.pid for process in started} <= own_children()
        assert link.sent == [{"do": "spare", "pids": [started[0].pid]}]
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_a_signal_that_comes_too_late_harms_nobody() -> None:
    watched = Session(30.0)
    watched._interrupt(int(session.SIGNAL), None)
    watched._verdict = {"outcome": "hang", "sentence": "…", "test": 0}
    watched._interrupt(int(session.SIGNAL), None)  # between two tests


def defined_here() -> None:
    """Not to be called."""


@pytest.mark.parametrize(
    ("target", "arguments", "message"),
    [
        (lambda: None, (), "top of a module"),
        (print, (), "top of a module"),
        (defined_here, (object(),), "plain values"),
        (defined_here, (Path("x"),), "plain values"),
    ],
)
def test_what_no_other_process_can_have_is_refused(target: Any, arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        job._command(target, arguments, 2, "torchrun")


def test_a_launch_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="torchrun, python"):
        job._command("train.py", (), 2, "srun")


def test_a_function_is_called_as_the_test_sees_it(hangdoc_job: RunJob, capfd: pytest.CaptureFixture[str]) -> None:
    found = hangdoc_job(say, "a b", [1, {"c": None}], launch="python")
    assert found.outcome is Outcome.HEALTHY
    assert "say 'a b' [1, {'c': None}]" in capfd.readouterr().out


def say(*words: object) -> None:
    """A function of this module."""
    print("say", *map(repr, words))


def test_a_module_of_the_same_name_is_not_taken_for_the_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "of_two_folders.py").write_text(f"def say(word): print({folder!r}, word)\n")
    path = [*sys.path, str(tmp_path / "first")]
    monkeypatch.setattr(sys, "path", list(path))
    monkeypatch.delitem(sys.modules, "of_two_folders", raising=False)
    for folder in ("first", "second"):
        file = tmp_path / folder / "of_two_folders.py"
        call_function.main([str(file), "of_two_folders", "say", "('x',)", repr(path)])
    monkeypatch.delitem(sys.modules, "of_two_folders")
    assert capsys.readouterr().out == "first x\nsecond x\n"


def test_a_job_that_only_fails_is_no_verdict(hangdoc_job: RunJob, tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text("import sys; sys.exit(7)")
    with pytest.raises(pytest.fail.Exception, match="exit status 7"):
        hangdoc_job(script, launch="python")


def test_a_job_that_does_not_end_fails_the_test(hangdoc_job: RunJob, tmp_path: Path) -> None:
    script = tmp_path / "naps.py"
    script.write_text("import time; time.sleep(60)")
    with pytest.raises(pytest.fail.Exception, match="neither ended nor hung within 2 s"):
        hangdoc_job(script, launch="python", timeout=2)
