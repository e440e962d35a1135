"""What the helper does with a verdict when the test does not come back."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from hangdoc.model.process import Process
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot, Unavailable
from hangdoc.pytest_plugin import listener as module
from hangdoc.pytest_plugin.helper import Said, Watched
from hangdoc.pytest_plugin.listener import TestListener
from hangdoc.sidecar.command import Run
from hangdoc.sidecar.options import WatchOptions

PARENT = 2**22 + 1  # no process has this number


class Sent:
    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def send(self, **message: Any) -> bool:
        self.messages.append(message)
        return True


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[TestListener, Watched, Sent, list[str]]:
    monkeypatch.setattr(module, "_UNWIND_SECONDS", 0.3)
    monkeypatch.setattr(module, "end_ranks", lambda *_: [4711])
    test = Watched(3, "test_it.py::test_hangs", WatchOptions(run_dir=tmp_path / "run", meet="off"), 57, 0.0)
    said: list[str] = []
    sent = Sent()
    run = Run(("pytest", "test_it.py"), "run", PARENT, tmp_path, test.spared.living)
    return TestListener(test, run, sent, Said(), said.append), test, sent, said  # type: ignore[arg-type]


def test_a_test_that_does_not_come_back_is_told_where_pytest_prints(
    parts: tuple[TestListener, Watched, Sent, list[str]],
) -> None:
    listener, _, sent, said = parts
    listener._outcome, listener._text = "hang", "the report\n"
    listener.after_report()
    assert sent.messages == [{"test": 3, "ended": True, "left": [4711]}]
    (text,) = said
    assert text.startswith("\nhangdoc: test_it.py::test_hangs hangs.")
    assert text.endswith("\nthe report\n")


@pytest.mark.parametrize("how", ["interrupted", "ended"])
def test_one_that_comes_back_is_told_by_pytest(
    parts: tuple[TestListener, Watched, Sent, list[str]], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    listener, test, sent, said = parts
    listener._outcome = "hang"

    def end_ranks(*_: object) -> list[int]:
        test.interrupted.set() if how == "interrupted" else test.state.end(0)
        return []

    monkeypatch.setattr(module, "end_ranks", end_ranks)
    listener.after_report()
    assert (said, len(sent.messages)) == ([], 1)


@pytest.mark.parametrize("outcome", ["slow", "blind", "healthy", ""])
def test_nothing_is_ended_for_less_than_a_hang(
    parts: tuple[TestListener, Watched, Sent, list[str]], outcome: str
) -> None:
    listener, _, sent, said = parts
    listener._outcome = outcome
    listener.after_report()
    assert (sent.messages, said) == ([], [])


def test_nothing_is_ended_for_a_test_that_has_ended(parts: tuple[TestListener, Watched, Sent, list[str]]) -> None:
    listener, test, sent, said = parts
    listener._outcome = "hang"
    test.state.end(0)
    listener.after_report()
    assert (sent.messages, said) == ([], [])


def test_where_the_tests_folder_takes_nothing_the_snapshot_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".hangdoc").touch()
    monkeypatch.chdir(tmp_path)
    test = Watched(1, "test_it.py::test_it", WatchOptions(run_dir=tmp_path / ".hangdoc" / "run", meet="off"), 0, 0.0)
    run = Run(("pytest", "test_it.py"), "20260101-run", PARENT, tmp_path, test.spared.living)
    listener = TestListener(test, run, Sent(), Said(), print)  # type: ignore[arg-type]
    assert listener.run_directory.path.name == "hangdoc-20260101-run"


def test_a_verdict_that_no_longer_holds_is_taken_back(parts: tuple[TestListener, Watched, Sent, list[str]]) -> None:
    listener, _, sent, _ = parts
    listener.on_resume(12.0)
    assert sent.messages == [{"test": 3, "outcome": "moves"}]


def test_a_change_in_a_stall_leaves_no_word_for_the_next_report(
    parts: tuple[TestListener, Watched, Sent, list[str]],
) -> None:
    listener, _, sent, said = parts
    listener._said = ("slow", (), None)
    listener.on_change(12.0)
    assert (listener._taken(), sent.messages, said) == ("", [], [])


def test_why_the_tests_own_process_has_no_history(parts: tuple[TestListener, Watched, Sent, list[str]]) -> None:
    listener, *_ = parts
    ranks = tuple(
        RankSnapshot(rank, "vm", "probe", process=Process(pid, 1, "rank")) for rank, pid in ((0, PARENT), (1, 99))
    )
    notes = tuple(Unavailable("journal", "its probe has not started", "look", rank) for rank in (0, 1))
    snapshot = listener._explained(JobSnapshot(taken=time.time(), mode="watch", ranks=ranks, unavailable=notes))
    assert [note.why for note in snapshot.unavailable] == ["it runs in pytest's own process", notes[1].why]
