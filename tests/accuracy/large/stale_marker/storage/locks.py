"""Lock files: whoever makes the file has the lock."""

from __future__ import annotations

import logging
import os
import socket
import time
from pathlib import Path
from types import TracebackType

LOG = logging.getLogger("forecast.lock")


class FileLock:
    """To be used in a ``with`` statement.

    ``takes_over``: the lock of a process of this machine that is gone may be taken. ``lease``: seconds after which a
    lock that nobody has touched may be taken, 0 for never.
    """

    def __init__(self, path: Path, *, takes_over: bool, lease: float, pause: float) -> None:
        self.path = path
        self.takes_over = takes_over
        self.lease = lease
        self.pause = pause
        self.waits = 0

    def acquire(self) -> None:
        while not self._create():
            if self.takes_over and self._owner_is_gone():
                LOG.debug("%s: the owner is gone", self.path.name)
                self._remove()
                continue
            if self.lease and self._age() > self.lease:
                LOG.debug("%s: the lease has ended", self.path.name)
                self._remove()
                continue
            self.waits += 1
            if self.waits % 100 == 0:
                LOG.debug("%s: still waiting", self.path.name)
            time.sleep(self.pause)

    def release(self) -> None:
        if self._owner() == (socket.gethostname(), os.getpid()):
            self._remove()

    def _create(self) -> bool:
        try:
            descriptor = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return False
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{socket.gethostname()} {os.getpid()}\n")
        return True

    def _owner(self) -> tuple[str, int] | None:
        try:
            words = self.path.read_text().split()
        except OSError:
            return None
        if len(words) != 2 or not words[1].isdigit():
            return None
        return words[0], int(words[1])

    def _owner_is_gone(self) -> bool:
        owner = self._owner()
        if owner is None:
            return self._age() > 30
        if owner[0] != socket.gethostname():
            return False
        try:
            os.kill(owner[1], 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False

    def _age(self) -> float:
        try:
            return time.time() - self.path.stat().st_mtime
        except OSError:
            return 0.0

    def _remove(self) -> None:
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> FileLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
