from __future__ import annotations

import os
import subprocess
from pathlib import Path

from hangdoc.capture.logs import log_paths, read_log, telling_lines


def test_tail(tmp_path: Path) -> None:
    log = tmp_path / "stderr.log"
    log.write_text("".join(f"line {number}\n" for number in range(100_000)))
    found = read_log((str(log),))
    assert found is not None
    assert found.path == str(log)
    assert found.lines == tuple(f"line {number}" for number in range(99_960, 100_000))


def test_control_characters_are_escaped_and_lines_cut(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\x1b[31mred\x07\n" + b"x" * 5000 + b"\n\xff\xfe")
    found = read_log((str(log),))
    assert found is not None
    assert found.lines[0] == "\\x1b[31mred\\x07"
    assert len(found.lines[1]) == 400
    assert all(line.isprintable() for line in found.lines)


def test_the_first_that_says_something(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "full").write_text("hello")
    found = read_log((str(tmp_path / "none"), str(tmp_path / "empty"), str(tmp_path), str(tmp_path / "full")))
    assert found is not None
    assert found.lines == ("hello",)
    assert read_log((str(tmp_path / "empty"),)) is None
    assert read_log(()) is None


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert read_log((str(tmp_path / "fifo"),)) is None


def test_a_file_that_takes_both_streams_is_named_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as both:
        process = subprocess.Popen(["sleep", "30"], stdout=both, stderr=both)
    try:
        assert log_paths(process.pid) == (str(log),)
    finally:
        process.kill()
        process.wait()


def test_lines_that_say_why_native_code_gave_up(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("loss 0.5\nterminate called after throwing 'gloo::EnforceNotMet'\n" + "traceback\n" * 100)
    found = telling_lines((str(tmp_path / "none"), str(log)))
    assert found is not None
    assert found.lines == ("terminate called after throwing 'gloo::EnforceNotMet'",)
    assert telling_lines(()) is None
