"""Paths as a process with another root and working folder means them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hangdoc.capture.safe.open_files import regular_file, regular_file_below


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for name, text in {"app/train.py": "train", "app/lib/data.py": "data", "etc/passwd": "theirs"}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (tmp_path / "passwd").write_text("ours")
    (root / "app/absolute.py").symlink_to("/etc/passwd")
    (root / "app/climbing.py").symlink_to("../../../../../etc/passwd")
    (root / "app/lib/up.py").symlink_to("../train.py")
    (root / "app/alias").symlink_to("/app/lib")
    (root / "app/loop.py").symlink_to("loop.py")
    (root / "app/etc.py").symlink_to(tmp_path / "passwd")
    os.mkfifo(root / "app/fifo.py")
    return root


def read(root: Path, path: str, start: str = "") -> str:
    with open(regular_file_below(str(root), path, start=start and str(root / start)), encoding="utf-8") as stream:
        return stream.read()


@pytest.mark.parametrize(
    ("path", "start", "text"),
    [
        ("/app/train.py", "", "train"),
        ("/app/./lib/../train.py", "", "train"),
        ("/app/absolute.py", "", "theirs"),
        ("/app/climbing.py", "", "theirs"),
        ("/../../etc/passwd", "", "theirs"),
        ("/app/lib/up.py", "", "train"),
        ("/app/alias/data.py", "", "data"),
        ("/app/alias/../train.py", "", "train"),
        ("train.py", "app", "train"),
        ("../train.py", "app/lib", "train"),
        ("../../../../../../../../../../etc/passwd", "app/lib", "theirs"),
        ("../app/absolute.py", "app", "theirs"),
        ("/app/train.py", "app/lib", "train"),
    ],
)
def test_nothing_leads_out_of_the_root(root: Path, path: str, start: str, text: str) -> None:
    assert read(root, path, start) == text


@pytest.mark.parametrize(
    "path", ["/app", "/app/loop.py", "/app/fifo.py", "/app/etc.py", "/gone", "/" + "a/" * 2000, "/"]
)
def test_what_is_no_file_there_is_refused(root: Path, path: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match=r"."):
        read(root, path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_below_a_file_there_is_nothing(root: Path) -> None:
    with pytest.raises(NotADirectoryError):
        read(root, "/app/train.py/inside.py")


def test_only_the_file_that_was_meant(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    status = file.stat()
    os.close(regular_file(str(file), identity=(status.st_dev, status.st_ino)))
    with pytest.raises(OSError, match="another file"):
        regular_file(str(file), identity=(status.st_dev, status.st_ino + 1))
