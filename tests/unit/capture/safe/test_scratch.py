"""Private folders, and what a sweep may take away."""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from pathlib import Path

import pytest

from hangdoc.capture.safe.scratch import LOCK_FILE, Scratch, sweep


def abandon(scratch: Scratch) -> Path:
    """As after a kill: the lock is gone with the process, the folder stays."""
    os.close(scratch._lock)
    return scratch.path


def test_it_is_private_and_gone_afterwards(tmp_path: Path) -> None:
    scratch = Scratch(str(tmp_path))
    assert stat.S_IMODE(scratch.path.stat().st_mode) == 0o700
    assert (scratch.path / LOCK_FILE).read_text() == f"{os.getpid()}\n"
    scratch.close()
    assert list(tmp_path.iterdir()) == []


def test_the_abandoned_is_swept_and_the_living_kept(tmp_path: Path) -> None:
    living, dead = Scratch(str(tmp_path)), abandon(Scratch(str(tmp_path)))
    for name in ("17.sock", "17.rank", "17.bye", "17.fault", "hangdoc_probe.py", "answer", "go"):
        (dead / name).touch()
    sweep(str(tmp_path))
    assert list(tmp_path.iterdir()) == [living.path]
    living.close()


def test_files_that_are_not_ours_stay(tmp_path: Path) -> None:
    dead = abandon(Scratch(str(tmp_path)))
    (dead / "results.csv").write_text("mine")
    precious = tmp_path / "precious.py"
    precious.write_text("kept")
    (dead / "link.py").symlink_to(precious)
    sweep(str(tmp_path))
    assert sorted(path.name for path in dead.iterdir()) == ["results.csv"]
    assert precious.read_text() == "kept"


@pytest.mark.parametrize("case", ["name", "mode", "link", "lock is a link", "lock is a fifo", "young", "file"])
def test_what_cannot_be_told_to_be_ours_stays(case: str, tmp_path: Path) -> None:
    below = tmp_path / "below"
    below.mkdir()
    dead = abandon(Scratch(str(tmp_path if case == "link" else below)))
    lock = dead / LOCK_FILE
    if case == "name":
        dead = dead.rename(below / "hangdoc-20251120-112400-4711-9f3a2c")
    elif case == "mode":
        dead.chmod(0o755)
    elif case == "link":
        (below / "hangdoc-abcdefgh").symlink_to(dead)
    elif case == "file":
        lock.unlink()
        dead.rmdir()
        dead.write_text("")
    else:
        lock.unlink()
        if case == "lock is a link":
            (dead / "other.pid").touch()
            lock.symlink_to("other.pid")
        elif case == "lock is a fifo":
            os.mkfifo(lock)
    began = time.monotonic()
    sweep(str(below))
    assert dead.exists()
    assert time.monotonic() - began < 5


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_another_users_stays(tmp_path: Path) -> None:
    dead = abandon(Scratch(str(tmp_path)))
    os.chown(dead, 12345, 12345)
    os.chown(dead / LOCK_FILE, 12345, 12345)
    sweep(str(tmp_path))
    assert (dead / LOCK_FILE).exists()


def test_one_that_was_never_locked_goes_when_it_is_old(tmp_path: Path) -> None:
    dead = abandon(Scratch(str(tmp_path)))
    (dead / LOCK_FILE).unlink()
    sweep(str(tmp_path))
    assert dead.exists()
    os.utime(dead, (time.time() - 86400,) * 2)
    sweep(str(tmp_path))
    assert not dead.exists()


def test_a_listening_rank_keeps_its_folder(tmp_path: Path) -> None:
    dead = abandon(Scratch(str(tmp_path)))
    if len(str(dead)) > 90:
        pytest.skip("the folder of tests is too deep for sockets")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(dead / "17.sock"))
        listener.listen()
        sweep(str(tmp_path))
        assert (dead / "17.sock").exists()
    sweep(str(tmp_path))
    assert not dead.exists()


def test_makers_and_sweepers_at_once(tmp_path: Path) -> None:
    over = threading.Event()

    def keep_sweeping() -> None:
        while not over.is_set():
            sweep(str(tmp_path))

    sweepers = [threading.Thread(target=keep_sweeping) for _ in range(2)]
    for sweeper in sweepers:
        sweeper.start()
    try:
        for _ in range(200):
            scratch = Scratch(str(tmp_path))
            assert (scratch.path / LOCK_FILE).read_text()
            scratch.close()
    finally:
        over.set()
        for sweeper in sweepers:
            sweeper.join()
    assert list(tmp_path.iterdir()) == []


def test_no_folder_to_sweep() -> None:
    sweep("/nowhere/at/all")
    sweep("/dev/null")


def test_what_was_planted_in_the_folder_for_answers_is_removed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "kept").write_text("kept")
    for dead in (True, False):
        scratch = Scratch(str(tmp_path))
        out = scratch.path / "out"
        (out / "deep" / "deeper").mkdir(parents=True)
        (out / "deep" / "results.csv").write_text("planted")
        (out / "link").symlink_to(precious)
        (out / "deep" / "link").symlink_to(precious)
        os.mkfifo(out / "pipe")
        if dead:
            abandon(scratch)
            sweep(str(tmp_path))
        else:
            scratch.close()
        assert list(tmp_path.iterdir()) == [precious]
    assert (precious / "kept").read_text() == "kept"


def test_so_much_is_planted_that_it_stays(tmp_path: Path) -> None:
    scratch = Scratch(str(tmp_path))
    deepest = scratch.path / "out"
    deepest.mkdir()
    folder = os.open(deepest, os.O_RDONLY)
    for _ in range(60):
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    scratch.close()
    assert scratch.path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a folder of another user")
def test_a_third_users_folder_is_not_emptied(tmp_path: Path) -> None:
    scratch = Scratch(str(tmp_path))
    theirs = scratch.path / "out" / "theirs"
    theirs.mkdir(parents=True)
    (theirs / "kept").write_text("kept")
    os.chown(scratch.path / "out", 1234, 1234)
    os.chown(theirs, 4321, 4321)
    scratch.close()
    assert (theirs / "kept").exists()
