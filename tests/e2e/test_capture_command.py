"""`hangdoc capture`: a snapshot on stdout and nothing else there, without typer and pydantic."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator

import pytest

from hangdoc.cli import main
from hangdoc.model.codec import snapshot_from_bytes

HANGDOC = [sys.executable, "-m", "hangdoc"]
BARE = """
import sys
for name in ("pydantic", "pydantic_core", "typer", "rich", "click", "torch", "psutil", "tomli"):
    sys.modules[name] = None
from hangdoc.__main__ import main
sys.exit(main())
"""


@pytest.fixture
def rank() -> Iterator[tuple[int, str]]:
    """(pid, key) of a process that carries a rank of torchrun's and sleeps; no torch is needed for that."""
    key = f"TORCHELASTIC_RUN_ID=capture-{os.getpid()}"
    variables = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_PORT": "29500"}
    name, _, value = key.partition("=")
    line = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
    process = subprocess.Popen(line, env={**os.environ, **variables, name: value}, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process.pid, key
    finally:
        process.kill()
        process.wait(20)
        process.stdout.close()


def run(line: list[str], *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*line, "capture", *words], capture_output=True, timeout=60, check=False)


@pytest.mark.parametrize("by", ["pid", "key"])
def test_it_runs_on_the_standard_library_alone(rank: tuple[int, str], by: str) -> None:
    pid, key = rank
    done = run([sys.executable, "-c", BARE], *([str(pid)] if by == "pid" else ["--job", key]))
    assert done.returncode == 0, done.stderr
    snapshot = snapshot_from_bytes(done.stdout)
    assert [(each.rank, each.process and each.process.pid) for each in snapshot.ranks] == [(0, pid)]
    assert snapshot.hosts[0].identity
    assert done.stderr.startswith(b"hangdoc: captured rank 0 on ")


def test_a_terminal_gets_no_snapshot(rank: tuple[int, str]) -> None:
    ours, theirs = pty.openpty()
    try:
        line = [*HANGDOC, "capture", str(rank[0])]
        done = subprocess.run(line, stdout=theirs, stderr=subprocess.PIPE, timeout=60, check=False)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 2
    assert b"hangdoc capture PID > HOST.hangdoc" in done.stderr


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--job", "PORT=1"], 2, b"no part of a job's key"),
        (["1", "--job", "MASTER_PORT=1"], 2, b"name the job twice"),
        (["x"], 2, b"no process id"),
        (["--jobs"], 2, b"unrecognized arguments"),
        (["--job", "MASTER_PORT=1,WORLD_SIZE=77777"], 3, b"no job with"),
        (["4194304000"], 2, b"no process id"),
        ([str((1 << 31) - 1)], 3, b"there is no process"),
    ],
)
def test_what_goes_wrong_goes_to_stderr(words: list[str], status: int, said: bytes) -> None:
    done = run(HANGDOC, *words)
    assert (done.returncode, done.stdout) == (status, b"")
    assert said in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_reader_that_goes_away_makes_no_noise(rank: tuple[int, str]) -> None:
    command = f"{sys.executable} -m hangdoc capture {rank[0]} | true"
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=60, check=False)
    assert b"Traceback" not in done.stderr


def test_the_command_line_lists_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "--help"]) == 0
    assert "--job NAME=VALUE" in capsys.readouterr().out
    assert main(["--help"]) == 0
    assert "capture" in capsys.readouterr().out
