"""A folder of ours in a place that others may write to: `--meet DIR` may name /tmp or a shared scratch disk.

Its name can be guessed, so somebody may have put a link or a folder of their own there. It is opened once, checked, and
every file in it is reached through that descriptor.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from hangdoc.capture.find.store_protocol import LARGEST_VALUE
from hangdoc.capture.safe.foreign import read_plain
from hangdoc.errors import HangdocError
from hangdoc.model.codec import write_atomically

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class OwnFolder:
    """A folder that belongs to us and that nobody else may write to, and the plain files in it.

    The methods raise ``OSError``, and ``ValueError`` for what must not be read.
    """

    def __init__(self, path: Path, *, make: bool = False) -> None:
        """Open it, and ``make`` it first if it is not there. ``ValueError`` if it is a link or may be others'."""
        self._path = path
        if make:
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
        try:
            self._descriptor = os.open(path, _FOLDER)
        except NotADirectoryError:  # what Linux says of a link, too
            raise ValueError(f"{path} is no folder but a file or a link, so it may be somebody else's") from None
        status = os.fstat(self._descriptor)
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            self.close()
            whose = "others may write to it" if status.st_uid == os.geteuid() else f"it belongs to user {status.st_uid}"
            raise ValueError(f"{path} is no folder of ours: {whose}")

    def close(self) -> None:
        """Let go of it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def remove(self) -> None:
        """Remove it with its files, and let go of it. What is no file of ours stays, and the folder then, too."""
        self.clear()
        with contextlib.suppress(OSError):
            os.rmdir(self._path)  # noqa: PTH106 - removes an empty folder or nothing
        self.close()

    def names(self) -> list[str]:
        """Of everything in it."""
        return os.listdir(self._descriptor)  # noqa: PTH208 - of the folder that was opened

    def put(self, name: str, data: bytes) -> None:
        """Write a file that only its owner may read, whole or not at all."""
        try:
            write_atomically(Path(f"/proc/self/fd/{self._descriptor}") / name, data, mode=0o600)
        except HangdocError as error:
            raise OSError(error.what) from error

    def read(self, name: str) -> bytes | None:
        """What is in the file of ours, no more than ``LARGEST_VALUE``; None if there is none."""
        try:
            return read_plain(name, LARGEST_VALUE, owners=(os.geteuid(),), folder=self._descriptor)
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ValueError(f"{name} is no file of ours: {error}") from None

    def drop(self, name: str) -> None:
        """Remove the file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)

    def clear(self) -> None:
        """Remove every file in it."""
        for name in self.names():
            with contextlib.suppress(IsADirectoryError):
                self.drop(name)
