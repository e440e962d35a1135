"""Private folders that last as long as a hangdoc runs; the next one removes those whose owner was killed.

Each holds a file that its owner keeps locked (flock(2)): a process that can lock it knows that the owner is gone. A
process id does not show that: containers that share /tmp count their own. Folders that may not be ours are left alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import re
import socket
import stat
import tempfile
import time
from pathlib import Path

LOCK_FILE = "watcher.pid"
_PREFIX = "hangdoc-"
# As tempfile.mkdtemp makes them; run directories below a temporary folder have longer names.
_NAME = re.compile(_PREFIX + r"[a-z0-9_]{8}")
_SUFFIXES = (".sock", ".rank", ".bye", ".fault", ".pid", ".tmp", ".py", ".new", ".json")
_NAMES = ("go", "answer", "failure")
_OUT = "out"
"""An injection's folder for the answer; it belongs to the process's user."""
_MODES = (0o700, 0o711)
_DEEPEST = 50
_MOST_PLANTED = 10_000
"""Of what another user put there: files and folders, and folders within each other. Judgement."""
_TRIES = 20
"""Of making a folder, where another hangdoc's sweep removes it at once. Judgement."""
_UNLOCKED_SECONDS = 3600.0
"""A folder without the lock file is being made just now, or its owner was killed in that moment. Judgement."""
_SWEEP_SECONDS = 0.5
"""Every start of hangdoc waits for the sweep. Judgement."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Scratch:
    """A new folder of mode 0700 below ``parent``, marked as ours and in use."""

    def __init__(self, parent: str) -> None:
        """Raises OSError."""
        for _ in range(_TRIES):
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
            try:
                lock = _mark(self.path)
            except OSError:
                _remove_at(parent, self.path.name)
                raise
            if lock is not None:
                self._lock = lock
                return
        raise OSError(f"{self.path}: new folders are removed there at once")

    def close(self) -> None:
        """Remove the folder and the files that hangdoc and its probes leave in it, nothing else."""
        os.close(self._lock)
        _remove_at(str(self.path.parent), self.path.name)


def _mark(folder: Path) -> int | None:
    """The locked descriptor of the folder's lock file; None if a sweep removed the folder first."""
    try:
        lock = os.open(folder / LOCK_FILE, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_nlink:
            os.write(lock, f"{os.getpid()}\n".encode())
            return lock
    except BlockingIOError:
        pass
    except OSError:
        os.close(lock)
        raise
    os.close(lock)
    return None


def sweep(parent: str) -> None:
    """Remove what killed hangdocs of our user left below ``parent``. Never raises; takes half a second at most.

    A folder stays if a rank that outlived its watch still listens in it: an attach can ask that rank.
    """
    until = time.monotonic() + _SWEEP_SECONDS
    with contextlib.suppress(OSError, ValueError), os.scandir(parent) as entries:
        for entry in entries:
            if time.monotonic() > until:
                break
            if _NAME.fullmatch(entry.name):
                with contextlib.suppress(OSError, ValueError):
                    _sweep_one(parent, entry.name)


def _sweep_one(parent: str, name: str) -> None:
    descriptor = os.open(os.path.join(parent, name), _FOLDER)  # noqa: PTH118 - its folder may be gone
    lock = -1
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) not in _MODES:
            return
        try:
            lock = os.open(LOCK_FILE, os.O_RDWR | _FILE, dir_fd=descriptor)
        except FileNotFoundError:
            if time.time() - status.st_mtime < _UNLOCKED_SECONDS or _is_alive(descriptor):
                return
        else:
            held = os.fstat(lock)
            if not stat.S_ISREG(held.st_mode) or held.st_uid != status.st_uid:
                return
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_alive(descriptor):
                return
        _empty(descriptor)
        os.rmdir(os.path.join(parent, name))  # noqa: PTH106, PTH118 - removes an empty folder or nothing
    finally:
        for open_one in (lock, descriptor):
            if open_one >= 0:
                os.close(open_one)


def _is_alive(folder: int) -> bool:
    """Whether a process listens on one of the sockets."""
    for name in os.listdir(folder):
        if name.endswith(".sock"):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
                try:
                    probe.connect(f"/proc/self/fd/{folder}/{name}")
                except (ConnectionRefusedError, FileNotFoundError):
                    continue
                except OSError:
                    return True  # too busy to answer, or no socket of ours: left alone
                return True
    return False


def _remove_at(parent: str, name: str) -> None:
    with contextlib.suppress(OSError):
        path = os.path.join(parent, name)  # noqa: PTH118
        descriptor = os.open(path, _FOLDER)
        try:
            _empty(descriptor)
        finally:
            os.close(descriptor)
        os.rmdir(path)  # noqa: PTH106


def _clear(folder: int, deep: int, left: list[int]) -> None:
    """Remove all that the process's user has put into an injection's folder: it is in a folder of ours, by descriptor,
    and no link is followed. ``left``: how many more may be removed; what is more, or deeper, stays."""
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in itertools.islice(entries, left[0])]
    for name, is_folder in found:
        left[0] -= 1
        if left[0] < 0:
            return
        with contextlib.suppress(OSError):
            if not is_folder:
                os.unlink(name, dir_fd=folder)
                continue
            if deep:
                inner = os.open(name, _FOLDER, dir_fd=folder)
                try:
                    # That user may have moved a folder of a third one there.
                    if os.fstat(inner).st_uid == os.fstat(folder).st_uid:
                        _clear(inner, deep - 1, left)
                finally:
                    os.close(inner)
            os.rmdir(name, dir_fd=folder)


def _empty(folder: int) -> None:
    """Unlink the files that hangdoc makes, the lock last."""
    for name in sorted(os.listdir(folder), key=lambda name: name == LOCK_FILE):
        if name == _OUT:
            with contextlib.suppress(OSError):
                inner = os.open(name, _FOLDER, dir_fd=folder)
                try:
                    _clear(inner, _DEEPEST, [_MOST_PLANTED])
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=folder)
        if name.endswith(_SUFFIXES) or name in _NAMES:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)
