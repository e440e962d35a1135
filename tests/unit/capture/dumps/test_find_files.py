"""What a folder may hold besides dumps, and what others may do to it while it is looked at."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recorder_dumps import dump, nccl, write

from hangdoc.capture.dumps import find_files as module
from hangdoc.capture.dumps.find_files import DumpFile, find_files, open_file
from hangdoc.capture.dumps.read_folder import read_dump_folder
from hangdoc.capture.load import open_saved
from hangdoc.diagnosis import diagnose
from hangdoc.report.terminal import render


def names(folder: Path) -> list[str]:
    return [file.path for file in find_files(folder)[0]]


def test_links_pipes_and_sockets_are_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    write(folder / "a" / "trace_0", dump(nccl(1)))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "trace_1").write_bytes(b"secret")
    (folder / "trace_1").symlink_to(tmp_path / "elsewhere" / "trace_1")
    (folder / "b").symlink_to(tmp_path / "elsewhere")
    (folder / "c").symlink_to(folder)
    os.mkfifo(folder / "trace_2")
    os.mknod(folder / "trace_3", stat.S_IFSOCK | 0o600)
    assert names(folder) == ["a/trace_0"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a device")
def test_a_device_is_not_opened(tmp_path: Path) -> None:
    try:
        os.mknod(tmp_path / "trace_0", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("no devices here")
    assert names(tmp_path) == []
    with pytest.raises(OSError, match="not a regular file"):
        open_file(tmp_path, DumpFile("trace_0", 0, 0.0))


def planted_link(at: Path, target: Path) -> None:
    at.rename(at.with_name("away"))
    at.symlink_to(target)


def planted_pipe(at: Path, _target: Path) -> None:
    at.rename(at.with_name("away"))
    os.mkfifo(at)


@pytest.mark.parametrize(
    ("path", "plant"),
    [("run/trace_0", planted_link), ("run/trace_0", planted_pipe), ("run", planted_link), ("run", planted_pipe)],
)
def test_what_is_replaced_after_it_was_found_is_not_opened(
    tmp_path: Path, path: str, plant: Callable[[Path, Path], None]
) -> None:
    folder, secret = tmp_path / "dumps", tmp_path / "secret"
    write(folder / "run" / "trace_0", dump(nccl(1)))
    write(secret / "trace_0", dump(nccl(1)))
    (file,) = find_files(folder)[0]
    os.close(open_file(folder, file))
    plant(folder / path, secret if path == "run" else secret / "trace_0")
    with pytest.raises(OSError, match=r"not a regular file|Not a directory"):
        open_file(folder, file)


def test_a_folder_that_becomes_a_link_during_the_search_is_not_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, secret = tmp_path / "dumps", tmp_path / "secret"
    write(folder / "run" / "trace_0", dump(nccl(1)))
    write(secret / "trace_1", dump(nccl(1)))
    looks: list[Any] = []
    scandir = os.scandir

    def replaced_meanwhile(place: Any) -> Any:
        looks.append(place)
        entries = list(scandir(place))
        if len(looks) == 1:
            planted_link(folder / "run", secret)
        return _Listed(entries)

    monkeypatch.setattr(module.os, "scandir", replaced_meanwhile)
    assert names(folder) == []
    assert len(looks) == 1


class _Listed(list[Any]):
    def __enter__(self) -> _Listed:
        return self

    def __exit__(self, *_: object) -> None: ...


def test_a_folder_without_end_is_left_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ENTRIES", 50)
    for outer in range(10):
        for inner in range(10):
            (tmp_path / f"d{outer}" / f"d{inner}").mkdir(parents=True)
            (tmp_path / f"d{outer}" / f".hidden{inner}").touch()
    write(tmp_path / "trace_0", dump(nccl(1)))
    files, more = find_files(tmp_path)
    assert more
    assert [file.path for file in files] == ["trace_0"]
    notes = [note.why for note in read_dump_folder(tmp_path).unavailable]
    assert "only 1 files were looked at, and there is more here" in notes


@pytest.mark.parametrize("name", [b"trace_\x1b[2J\x1b]0;owned\x07_0", b"trace_\xff\xfe_0", "trace_\u202e_0".encode()])
def test_a_name_that_would_command_the_terminal_is_shown_as_text(tmp_path: Path, name: bytes) -> None:
    write(tmp_path / "trace_1", dump(nccl(1, state="started", retired=False)))
    (tmp_path / os.fsdecode(name)).write_bytes(b"\x80\x04broken")
    job = open_saved(tmp_path)
    shown = render(diagnose(job))
    assert "trace_" in shown
    assert all(c.isprintable() or c == "\n" for c in shown)
    shown.encode()
