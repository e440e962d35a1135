from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoc.errors import WatcherFailed
from hangdoc.sidecar.logs import folder as module
from hangdoc.sidecar.logs.folder import LogFolder, Tail


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[LogFolder]:
    made = LogFolder(tmp_path)
    yield made
    made.close()


def rank_file(folder: LogFolder, local: int, text: str = "", attempt: int = 0, name: str = "stdout.log") -> Path:
    """As torchrun makes it."""
    path = folder.path / "id_x" / f"attempt_{attempt}" / str(local) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def of_ranks(folder: LogFolder) -> list[Tail]:
    return [tail for tail in folder.tails if tail.local is not None]


def test_for_the_users_eyes_only(folder: LogFolder) -> None:
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.path.iterdir()} == {
        "stdout.log": 0o600,
        "stderr.log": 0o600,
    }
    assert all(descriptor > 2 for descriptor in folder.outputs)


def test_an_earlier_runs_logs_stay(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "logs").symlink_to("elsewhere")
    made = LogFolder(tmp_path)
    made.close()
    assert made.path == tmp_path / "logs-2"
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_where_nothing_can_be_made(tmp_path: Path) -> None:
    with pytest.raises(WatcherFailed, match="cannot make the files of --logs"):
        LogFolder(tmp_path / "none")


def test_what_the_command_writes(folder: LogFolder) -> None:
    os.write(folder.outputs[0], b"hello\n")
    os.write(folder.outputs[1], b"oh\n")
    folder.let_go()
    assert [(tail.stderr, tail.read(100), tail.read(100)) for tail in folder.tails] == [
        (False, b"hello\n", b""),
        (True, b"oh\n", b""),
    ]


def test_ranks_are_found_once(folder: LogFolder) -> None:
    for local in (1, 0, 10):
        rank_file(folder, local, f"I am {local}\n")
        rank_file(folder, local, name="stderr.log")
    assert folder.search()
    assert not folder.search()
    assert [(tail.local, tail.stderr) for tail in of_ranks(folder)] == [
        (local, stderr) for local in (0, 1, 10) for stderr in (False, True)
    ]
    (attempt,) = folder.attempts.values()
    attempt.base = 8
    assert attempt.ranks() == {8, 9, 18}


def test_a_restart_ends_the_attempt_before(folder: LogFolder) -> None:
    rank_file(folder, 0, "old\n")
    folder.search()
    assert folder.ended() == []
    rank_file(folder, 0, "new\n", attempt=1)
    folder.search()
    ended = folder.ended()
    assert [tail.path for tail in ended] == [str(folder.path / "id_x/attempt_0/0/stdout.log")]
    folder.drop(ended)
    folder.search()
    assert [tail.read(100) for tail in of_ranks(folder)] == [b"new\n"]


def test_an_attempt_that_is_begun_anew(folder: LogFolder) -> None:
    path = rank_file(folder, 0, "old\n")
    folder.search()
    path.unlink()
    rank_file(folder, 0, "new\n")
    folder.search()
    assert [tail.read(100) for tail in of_ranks(folder)] == [b"old\n", b"new\n"]
    folder.drop(folder.ended())
    assert len(of_ranks(folder)) == 1


@pytest.mark.parametrize("what", ["link", "linked folder", "fifo", "device", "folder"])
def test_nothing_but_files_of_ours_is_read(what: str, folder: LogFolder, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "stdout.log").write_text("secret\n")
    path = folder.path / "id_x" / "attempt_0" / "0" / "stdout.log"
    path.parent.parent.mkdir(parents=True)
    if what == "linked folder":
        path.parent.symlink_to(secret)
    else:
        path.parent.mkdir()
    if what == "link":
        path.symlink_to(secret / "stdout.log")
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "device":
        path.symlink_to("/dev/zero")
    elif what == "folder":
        path.mkdir()
    folder.search()
    assert of_ranks(folder) == []


def test_a_file_that_was_emptied_is_read_anew(folder: LogFolder) -> None:
    path = rank_file(folder, 0, "first\n")
    folder.search()
    (tail,) = of_ranks(folder)
    assert tail.read(100) == b"first\n"
    path.write_text("2\n")
    assert tail.read(100) == b"2\n"


def test_a_flood_is_skipped_and_counted(folder: LogFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LARGEST_LAG", 1000)
    monkeypatch.setattr(module, "_KEPT", 10)
    path = rank_file(folder, 0, "x" * 1000)
    folder.search()
    (tail,) = of_ranks(folder)
    assert (len(tail.read(400)), tail.skipped) == (400, 0)
    path.write_text("y" * 5000)
    assert (tail.read(400), tail.skipped) == (b"y" * 10, 5000 - 400 - 10)
    assert (tail.read(400), tail.skipped) == (b"", 0)


def test_only_so_many_files_are_open(folder: LogFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_FILES", 5)
    for local in range(10):
        rank_file(folder, local)
    folder.search()
    assert len(folder.tails) == 5


def test_files_in_another_folder(folder: LogFolder, tmp_path: Path) -> None:
    path = tmp_path / "mine" / "attempt_0" / "1" / "stderr.log"
    path.parent.mkdir(parents=True)
    path.write_text("hello\n")
    for _ in range(2):
        assert folder.add_elsewhere(str(path), os.open(path, os.O_RDONLY), 5)
    assert not folder.add_elsewhere(str(path.parent / "out"), os.open(path, os.O_RDONLY), 5)
    (tail,) = of_ranks(folder)
    assert tail.stderr
    assert tail.attempt is not None
    assert tail.attempt.rank(1) == 5
