from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from hangdoc.errors import HangdocError, WatcherFailed
from hangdoc.sidecar.run_directory import POINTER_FILE, RunDirectory, SocketFolder, living_watcher, new_run_id


def test_run_ids_differ() -> None:
    assert len({new_run_id() for _ in range(50)}) == 50


def test_socket_folder_is_private_short_and_gone_afterwards(tmp_path: Path) -> None:
    folder = SocketFolder({"XDG_RUNTIME_DIR": str(tmp_path)})
    try:
        assert folder.path.parent == tmp_path or len(str(tmp_path)) > 70
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
        assert (folder.path / "watcher.pid").read_text() == f"{os.getpid()}\n"
        (folder.path / "17.sock").touch()
        (folder.path / "17.bye").touch()
    finally:
        folder.close()
    assert not folder.path.exists()


def test_a_foreign_file_in_the_socket_folder_survives(tmp_path: Path) -> None:
    folder = SocketFolder({"XDG_RUNTIME_DIR": str(tmp_path)})
    (folder.path / "notes.txt").write_text("mine")
    folder.close()
    assert (folder.path / "notes.txt").read_text() == "mine"
    (folder.path / "notes.txt").unlink()
    folder.path.rmdir()


@pytest.mark.parametrize("runtime", ["/nowhere/at/all", "relative", "", None, "long"])
def test_socket_folder_falls_back_to_tmp(runtime: str | None, tmp_path: Path) -> None:
    if runtime == "long":
        deep = tmp_path / ("x" * 100)
        deep.mkdir()
        runtime = str(deep)
    folder = SocketFolder({"XDG_RUNTIME_DIR": runtime} if runtime is not None else {})
    try:
        assert folder.path.parent == Path("/tmp")
        assert len(str(folder.path / "4194304.sock")) < 108
    finally:
        folder.close()
    if runtime and Path(runtime).is_dir():
        assert list(Path(runtime).iterdir()) == []


def test_a_watcher_is_living_as_long_as_it_holds_its_lock(tmp_path: Path) -> None:
    folder = SocketFolder({"XDG_RUNTIME_DIR": str(tmp_path)})
    environment = {"WATCH": str(folder.path)}
    assert living_watcher(environment, "WATCH") == os.getpid()
    os.close(folder._scratch._lock)
    assert living_watcher(environment, "WATCH") is None
    folder._scratch._lock = os.open(os.devnull, os.O_RDONLY)
    folder.close()
    assert living_watcher(environment, "WATCH") is None
    assert living_watcher({}, "WATCH") is None


def test_run_directory_is_made_only_when_asked_for(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / ".hangdoc" / "run")
    directory.socket_folder = Path("/run/somewhere")
    directory.check()
    assert not (tmp_path / ".hangdoc").exists()
    made = directory.make()
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    pointer = made / POINTER_FILE
    assert pointer.read_text() == "/run/somewhere\n"
    assert stat.S_IMODE(pointer.stat().st_mode) == 0o600
    assert directory.make() == made


def test_run_directory_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WatcherFailed, match="not a directory") as caught:
        RunDirectory(tmp_path / "file" / "run").check()
    assert "--run-dir" in caught.value.remedy


def test_run_directory_with_an_endless_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WatcherFailed, match="too long"):
        RunDirectory(tmp_path / ("x" * 300)).check()


def test_a_long_path_of_short_names_is_fine(tmp_path: Path) -> None:
    path = tmp_path.joinpath(*["deep" * 10] * 8)
    directory = RunDirectory(path)
    directory.check()
    assert directory.make().is_dir()


def test_run_directory_that_vanishes_is_an_error_of_ours(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "parent" / "run")
    directory.check()
    (tmp_path / "parent").touch()
    with pytest.raises(HangdocError, match="cannot make"):
        directory.make()


def test_a_full_disk_is_told_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(WatcherFailed, match="No space left"):
        SocketFolder({"XDG_RUNTIME_DIR": str(tmp_path)})
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


def test_the_latest_run_has_a_name_and_git_ignores_all_runs(tmp_path: Path) -> None:
    parent = tmp_path / ".hangdoc"
    for name in ("first", "second"):
        RunDirectory(parent / name).make()
        assert (parent / "latest").resolve() == parent / name
    assert (parent / ".gitignore").read_text() == "*\n"
    assert sorted(os.listdir(parent)) == [".gitignore", "first", "latest", "second"]


def test_what_the_user_has_there_stays(tmp_path: Path) -> None:
    parent = tmp_path / ".hangdoc"
    parent.mkdir()
    (parent / "latest").mkdir()
    (parent / ".gitignore").write_text("mine")
    RunDirectory(parent / "run").make()
    assert (parent / "latest").is_dir()
    assert not (parent / "latest").is_symlink()
    assert (parent / ".gitignore").read_text() == "mine"
    RunDirectory(tmp_path / "elsewhere" / "run").make()
    assert os.listdir(tmp_path / "elsewhere") == ["run"]
