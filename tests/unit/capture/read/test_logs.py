from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from hangdoc.capture.read.logs import LogFile, error_lines, log_files, read_log, telling_lines


def files(*paths: Path) -> tuple[LogFile, ...]:
    found = [(path, path.stat() if path.exists() else None) for path in paths]
    return tuple(LogFile(str(path), (status.st_dev, status.st_ino) if status else (0, 0)) for path, status in found)


def test_tail(tmp_path: Path) -> None:
    log = tmp_path / "stderr.log"
    log.write_text("".join(f"line {number}\n" for number in range(100_000)))
    found = read_log(files(log))
    assert found is not None
    assert found.path == str(log)
    assert found.lines == tuple(f"line {number}" for number in range(99_960, 100_000))


def test_control_characters_are_escaped_and_lines_cut(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\x1b[31mred\x07\n" + b"x" * 5000 + b"\n\xff\xfe")
    found = read_log(files(log))
    assert found is not None
    assert found.lines[0] == "\\x1b[31mred\\x07"
    assert len(found.lines[1]) == 400
    assert all(line.isprintable() for line in found.lines)


def test_the_first_that_says_something(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "full").write_text("hello")
    found = read_log(files(tmp_path / "none", tmp_path / "empty", tmp_path, tmp_path / "full"))
    assert found is not None
    assert found.lines == ("hello",)
    assert read_log(files(tmp_path / "empty")) is None
    assert read_log(()) is None


@pytest.mark.parametrize(("said", "first"), [("a line of the start\n", "stdout"), ("ValueError: of 3\n", "stderr")])
def test_only_an_error_may_lie_a_second_back(tmp_path: Path, said: str, first: str) -> None:
    stderr, stdout = tmp_path / "stderr.log", tmp_path / "stdout.log"
    stderr.write_text(said)
    stdout.write_text("step 3\n")
    os.utime(stderr, (0, stdout.stat().st_mtime - 1))
    found = read_log(files(stderr, stdout))
    assert found is not None
    assert Path(found.path).stem == first


def test_what_was_written_last_comes_before_what_lies_back(tmp_path: Path) -> None:
    stderr, stdout = tmp_path / "stderr.log", tmp_path / "stdout.log"
    stderr.write_text("a warning of the start\n")
    stdout.write_text("saving\n")
    found = read_log(files(stderr, stdout))
    assert found is not None
    assert found.path == str(stderr), "both tell of the same moment"
    os.utime(stderr, (0, stdout.stat().st_mtime - 60))
    found = read_log(files(stderr, stdout))
    assert found is not None
    assert found.path == str(stdout)
    stdout.write_text("")
    found = read_log(files(stderr, stdout))
    assert found is not None
    assert found.path == str(stderr)


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert read_log(files(tmp_path / "fifo")) is None


def test_a_file_that_takes_both_streams_is_named_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as both:
        process = subprocess.Popen(["sleep", "30"], stdout=both, stderr=both)
    try:
        assert log_files(process.pid) == files(log)
    finally:
        process.kill()
        process.wait()


def test_lines_that_say_why_native_code_gave_up(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("loss 0.5\nterminate called after throwing 'gloo::EnforceNotMet'\n" + "traceback\n" * 100)
    found = telling_lines(files(tmp_path / "none", log))
    assert found is not None
    assert found.lines == ("terminate called after throwing 'gloo::EnforceNotMet'",)
    assert telling_lines(()) is None


def test_errors_that_the_program_went_on_after(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "loss 0.5, mean error 0.1\n"
        "Exception in thread stats (run):\n"
        "Traceback (most recent call last):\n"
        '  File "a.py", line 3, in run\n'
        "    raise KeyError(3)\n"
        "KeyError: 3\n"
        "[default3]:Process env-worker:\n"
        "[default3]:Traceback (most recent call last):\n"
        '[default3]:  File "a.py", line 3, in run\n'
        "[default3]:ValueError\n"
        "rank 3: [Errno 122] Disk quota exceeded: '/ckpt'\n"
        "hangdoc ✖ hang · ERROR\n"
        "  Rank 0 ended with ERROR.\n"
        "ERROR:export:epoch 3 failed\n"
        "Exception in thread other (run):\n"
        "epoch 4\n"
        "FileNotFoundError: [Errno 2] No such file: '/scratch'\n"
    )
    found = error_lines(files(tmp_path / "none", log))
    assert found is not None
    assert found.lines == (
        "Exception in thread stats (run): KeyError: 3",
        "[default3]:Process env-worker: ValueError",
        "rank 3: [Errno 122] Disk quota exceeded: '/ckpt'",
        "ERROR:export:epoch 3 failed",
        "FileNotFoundError: [Errno 2] No such file: '/scratch'",
    )
    log.write_text("loss 0.5\n")
    assert error_lines(files(log)) is None


@pytest.mark.parametrize("swap", ["link", "other", "device", "folder"])
def test_a_file_that_took_the_logs_name_is_not_read(swap: str, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    log, secret = folder / "rank0.log", tmp_path / "rank0.log"
    log.write_text("my own words\n")
    secret.write_text("root's words\n")
    remembered = files(log)
    assert read_log(remembered) is not None
    log.rename(folder / "away")
    if swap == "link":
        log.symlink_to(secret)
    elif swap == "other":
        os.link(secret, log)
    elif swap == "device":
        log.symlink_to("/dev/zero")
    else:
        folder.rename(tmp_path / "gone")
        folder.symlink_to(tmp_path)
    assert read_log(remembered) is None
    assert telling_lines(remembered) is None
    assert error_lines(remembered) is None
