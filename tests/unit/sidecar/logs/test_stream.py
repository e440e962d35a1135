"""The stream over files that the tests write, as a command and torchrun's ranks would."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hangdoc.sidecar.logs.choice import Choice
from hangdoc.sidecar.logs.folder import LogFolder
from hangdoc.sidecar.logs.stream import LogStream, Look, tag_of


class Shown:
    """A stream that writes to a pipe."""

    def __init__(self, path: Path, choice: Choice, look: Look) -> None:
        self.reader, self.writer = os.pipe()
        self.folder = LogFolder(path)
        self.command = tuple(os.dup(descriptor) for descriptor in self.folder.outputs)
        self.stream = LogStream(self.folder, choice, replace(look, output=self.writer))
        self.failures: list[str] = []
        self.text = ""

    def rank(self, local: int, text: str, *, attempt: int = 0, name: str = "stdout.log") -> None:
        path = self.folder.path / "id_x" / f"attempt_{attempt}" / str(local) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(text)

    def begin(self) -> None:
        self.stream.begin(os.getpid(), self.failures.append)

    def read_until(self, part: str, deadline: float = 20.0) -> None:
        os.set_blocking(self.reader, False)
        end = time.monotonic() + deadline
        while part not in self.text:
            assert time.monotonic() < end, f"{part!r} never came: {self.text!r}"
            try:
                self.text += os.read(self.reader, 65536).decode()
            except BlockingIOError:
                time.sleep(0.01)

    def end(self) -> str:
        """All that was shown."""
        self.stream.end()
        assert self.stream.is_done(20.0)
        os.close(self.writer)
        self.writer = -1
        os.set_blocking(self.reader, True)
        while data := os.read(self.reader, 65536):
            self.text += data.decode()
        return self.text

    def close(self) -> None:
        self.stream.close()
        for descriptor in (self.reader, self.writer, *self.command):
            if descriptor >= 0:
                os.close(descriptor)


Make = Callable[..., Shown]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Shown] = []

    def new(choice: Choice | None = None, look: Look | None = None) -> Shown:
        made.append(Shown(tmp_path, choice or Choice(), look or Look()))
        return made[-1]

    yield new
    for each in made:
        each.close()


def test_one_line_for_all_who_say_it(make: Make) -> None:
    shown = make()
    for local in range(4):
        shown.rank(local, "epoch 1\n" + ("saving\n" if local == 2 else "") + "epoch 2\n")
    shown.begin()
    assert shown.end() == "[0-3] epoch 1\n[2]   saving\n[0-3] epoch 2\n"
    assert shown.failures == []


def test_a_rank_alone_is_heard_at_once(make: Make) -> None:
    """The deadline of the test is far above the limit, but the job still runs: nothing else brings the line out."""
    shown = make()
    for local in range(4):
        shown.rank(local, "")
    shown.begin()
    shown.rank(1, "waiting\n")
    shown.read_until("[1] waiting\n")


def test_the_command_itself_has_no_ranks(make: Make) -> None:
    shown = make()
    os.write(shown.command[1], b"W1123 03:06:47.717000 1 run.py:874] careful\n")
    shown.begin()
    shown.read_until("careful\n")
    shown.rank(0, "hello\n")
    os.write(shown.command[0], b"done, no end of line")
    assert shown.end().splitlines()[1:] == ["[0] hello", "done, no end of line"]
    assert shown.text.startswith("W1123 03:06:47.717000 1 run.py:874] careful\n")


def test_each_ranks_traceback_in_one_piece(make: Make) -> None:
    shown = make()
    trace = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\nValueError: bad\n'
    for local in range(2):
        shown.rank(local, "epoch 1\n")
        shown.rank(local, trace, name="stderr.log")
    shown.begin()
    lines = shown.end().splitlines()
    assert lines[0] == "[0,1] epoch 1"
    for rank in (0, 1):
        own = [place for place, line in enumerate(lines) if line.startswith(f"[{rank}] ")]
        said = [lines[place].partition("]")[2].strip() for place in own]
        assert said == [line.strip() for line in trace.splitlines()]
        assert own == list(range(own[0], own[0] + 3))


def test_a_restart_goes_on_below(make: Make) -> None:
    shown = make()
    shown.rank(0, "first\nno end")
    shown.begin()
    shown.read_until("first\n")
    shown.rank(0, "second\n", attempt=1)
    shown.read_until("second\n")
    assert shown.end() == "[0] first\n[0] no end\n[0] second\n"


def test_ranks_that_the_user_does_not_want_to_see(make: Make) -> None:
    shown = make(Choice(only=frozenset({1})))
    for local in range(2):
        shown.rank(local, "hello\n")
    shown.begin()
    assert shown.end() == "[1] hello\n"


def test_colors_are_the_streams_and_of_lines_only_where_wanted(make: Make) -> None:
    shown = make(look=Look(color=True))
    shown.rank(0, "\x1b[32mgreen\x1b[2J\n")
    shown.rank(0, "Traceback (most recent call last):\n", name="stderr.log")
    shown.begin()
    text = shown.end()
    assert "\x1b[36m[0]\x1b[0m \x1b[32mgreen\x1b[0m\n" in text
    assert "\x1b[1;31m[0]\x1b[0m Traceback" in text


def test_a_reader_that_leaves_ends_the_stream_alone(make: Make) -> None:
    shown = make()
    shown.begin()
    os.close(shown.reader)
    shown.reader = -1
    shown.rank(0, "hello\n")
    assert shown.stream.is_done(20.0)
    assert shown.failures == []


def test_a_reader_that_stops_reading_stops_nobody_else(make: Make) -> None:
    shown = make()
    shown.rank(0, "x" * 100 + "\n" + "y\n" * 200_000)
    shown.begin()
    shown.read_until("x\n")
    began = time.monotonic()
    with shown.stream.held():
        pass
    shown.stream.close()
    assert time.monotonic() - began < 15.0


def test_many_scattered_ranks_are_counted() -> None:
    assert tag_of(range(4)) == "[0-3]"
    assert tag_of([0, 1, 5]) == "[0,1,5]"
    assert tag_of(range(0, 64, 2)) == "[0,2,4 … 62: 32 ranks]"
