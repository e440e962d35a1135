"""The pipe over which a rank is asked for its dump: only its own, and never waited for."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hangdoc.capture.read import dump_pipes
from hangdoc.capture.read.dump_pipes import PIPES, ask_for_dump

READER = """
import os, sys, time
path, flags, reads = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "yes"
pipe = os.open(path, flags)
print("ready", flush=True)
while True:
    if reads:
        try:
            data = os.read(pipe, 128)
        except BlockingIOError:
            data = b""
        if data:
            print("asked", data, flush=True)
    time.sleep(0.02)
"""


@contextmanager
def process(path: Path, *, flags: int = os.O_RDONLY | os.O_NONBLOCK, reads: bool = True) -> Any:
    command = [sys.executable, "-c", READER, str(path), str(flags), "yes" if reads else "no"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as found:
        try:
            assert found.stdout is not None
            assert found.stdout.readline() == "ready\n"
            yield found
        finally:
            found.kill()


def variables(folder: Path) -> dict[str, str]:
    return {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{folder}/fr_"}


@pytest.mark.parametrize("variable", PIPES)
def test_a_rank_that_reads_its_pipe_is_asked_once(tmp_path: Path, variable: str) -> None:
    os.mkfifo(tmp_path / "fr_2.pipe")
    with process(tmp_path / "fr_2.pipe") as reader:
        assert ask_for_dump(reader.pid, 2, {variable: f"{tmp_path}/fr_"}) == ""
        assert reader.stdout.readline() == "asked b'1'\n"
        assert "no pipe fr_1.pipe" in ask_for_dump(reader.pid, 1, variables(tmp_path))
        assert "not set" in ask_for_dump(reader.pid, 2, {})


def test_a_pipe_that_the_rank_does_not_read_is_left_alone(tmp_path: Path) -> None:
    """A FIFO of that name lies there, and another process may act on what it gets."""
    os.mkfifo(tmp_path / "fr_2.pipe")
    os.mkfifo(tmp_path / "other")
    with process(tmp_path / "other") as rank, process(tmp_path / "fr_2.pipe") as stranger:
        assert "no pipe" in ask_for_dump(rank.pid, 2, variables(tmp_path))
        os.kill(stranger.pid, signal.SIGTERM)
        assert stranger.stdout.read() == ""


@pytest.mark.parametrize("make", [lambda path: path.write_bytes(b""), lambda path: path.symlink_to("/dev/null")])
def test_a_file_in_its_place_is_not_written_to(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    make(tmp_path / "fr_2.pipe")
    with process(tmp_path / "fr_2.pipe", flags=os.O_RDONLY, reads=False) as rank:
        assert ask_for_dump(rank.pid, 2, variables(tmp_path)) != ""
    assert (tmp_path / "fr_2.pipe").read_bytes() == b""


def test_a_full_pipe_blocks_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fr_2.pipe")
    with process(tmp_path / "fr_2.pipe", reads=False) as rank:
        descriptor = os.open(tmp_path / "fr_2.pipe", os.O_WRONLY | os.O_NONBLOCK)
        while True:
            try:
                os.write(descriptor, bytes(4096))
            except BlockingIOError:
                break
        began = time.monotonic()
        assert "full" in ask_for_dump(rank.pid, 2, variables(tmp_path))
        assert time.monotonic() - began < 2
        os.close(descriptor)


def test_a_process_that_is_gone(tmp_path: Path) -> None:
    assert "cannot be read" in ask_for_dump(1 << 22, 2, variables(tmp_path))


def test_what_is_opened_under_its_number_meanwhile_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may put a device there at any moment, which acts when root opens it for writing."""
    os.mkfifo(tmp_path / "fr_2.pipe")
    (tmp_path / "other").write_text("")
    pipe = os.open(tmp_path / "fr_2.pipe", os.O_RDONLY | os.O_NONBLOCK)
    other, reader = os.open(tmp_path / "other", os.O_RDONLY), os.dup(pipe)
    real_open, real_stat = os.open, os.stat
    opened: list[int] = []

    def looked(found: Any) -> Any:
        os.dup2(other, pipe)
        return found

    def opening(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        descriptor = real_open(path, flags, *rest, **more)
        if flags & os.O_ACCMODE == os.O_WRONLY:
            opened.append(os.fstat(descriptor).st_mode)
        return looked(descriptor) if flags & os.O_PATH else descriptor

    monkeypatch.setattr(dump_pipes.os, "open", opening)
    monkeypatch.setattr(dump_pipes.os, "stat", lambda *words, **more: looked(real_stat(*words, **more)))
    try:
        assert ask_for_dump(os.getpid(), 2, variables(tmp_path)) == ""
        assert [stat.S_ISFIFO(mode) for mode in opened] == [True]
    finally:
        for descriptor in (pipe, other, reader):
            os.close(descriptor)
