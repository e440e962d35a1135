"""The folder through which code that was injected into a process gets its files and hands back its answer."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from types import TracebackType

from hangdoc.capture.safe.foreign import read_plain
from hangdoc.capture.safe.scratch import Scratch, sweep

OUT = "out"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Exchange:
    """The process reads what lies in ``path``, and writes into the folder ``out`` below, which belongs to its user.

    That user may be another than ours, and may put anything in ``out``: links to files that only we may read, pipes,
    files of other users. That user can change nothing in ``path`` itself, and no name is looked up twice: both folders
    are held open.
    """

    def __init__(self, user: int, group: int) -> None:
        """Make the folders for a process of that ``user`` and ``group``. OSError if they cannot be made."""
        self._user = user
        self._foreign = user != os.geteuid()
        # Another user's process cannot reach a private TMPDIR of ours.
        parent = "/tmp" if self._foreign else tempfile.gettempdir()  # noqa: S108 - what is made is private
        sweep(parent)
        self._scratch = Scratch(parent)
        self.path = self._scratch.path
        self._names: list[str] = []
        self._out = -1
        self._folder = os.open(self.path, _FOLDER)
        try:
            if os.fstat(self._folder).st_uid != os.geteuid():
                raise PermissionError(f"{self.path} is not ours any more")
            os.mkdir(OUT, 0o700, dir_fd=self._folder)
            self._out = os.open(OUT, _FOLDER, dir_fd=self._folder)
            if self._foreign:
                os.fchown(self._out, user, group)
                os.fchmod(self._folder, 0o711)
        except BaseException:
            self.close()
            raise

    @property
    def out(self) -> Path:
        """Where the process writes."""
        return self.path / OUT

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def put(self, name: str, data: bytes = b"") -> None:
        """A new file for the process to read."""
        with os.fdopen(os.open(name, _NEW, 0o600, dir_fd=self._folder), "wb") as file:
            self._names.append(name)
            if self._foreign:
                os.fchmod(file.fileno(), 0o644)
            file.write(data)

    def take(self, name: str, limit: int) -> bytes | None:
        """The contents of a file that the process wrote; None: nothing yet. ValueError if it cannot have written it."""
        try:
            return read_plain(name, limit, owners={self._user}, folder=self._out)
        except FileNotFoundError:
            return None

    def close(self) -> None:
        """Remove what we made, and what the process or its user has put into ``out``."""
        for name in self._names:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self._folder)
        self._scratch.close()
        for folder in (self._out, self._folder):
            if folder >= 0:
                os.close(folder)
