"""``--keep N``: remove the older runs of ``.hangdoc``, never one that still runs, and nothing that is no run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from pathlib import Path

from hangdoc.sidecar.run_directory import DEFAULT_PARENT, RUN_LOCK

_RUN = re.compile(r"\d{8}-\d{6}-\d+-[0-9a-f]{6}", re.ASCII)
"""The names that ``new_run_id`` gives: they sort by time."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MOST_FILES = 100_000
_DEEPEST = 8
"""Files of one run, and folders in each other, after which the rest stays. Chosen by hand: a run has some files for
each stall and rank."""


def prune(current: Path, keep: int) -> list[str]:
    """Remove all but the ``keep`` newest runs beside ``current``, which counts as one of them; returns their names.

    Only below a folder called .hangdoc that is ours; only folders that are ours, have the name of a run and the lock of
    one, which nobody holds. Everything is opened from the folder above it, and no link is followed. Raises ``OSError``.
    """
    if current.parent.name != DEFAULT_PARENT:
        return []
    parent = os.open(current.parent, _FOLDER)
    try:
        if os.fstat(parent).st_uid != os.geteuid():
            return []
        names = os.listdir(parent)  # noqa: PTH208 - a descriptor
        runs = sorted(name for name in names if _RUN.fullmatch(name) and name != current.name)
        old = runs[: max(0, len(runs) - (keep - 1))]
        return [name for name in old if _remove_if_ended(name, parent)]
    finally:
        os.close(parent)


def _remove_if_ended(name: str, parent: int) -> bool:
    try:
        run = os.open(name, _FOLDER, dir_fd=parent)
    except OSError:  # a link, a file, or gone
        return False
    try:
        if os.fstat(run).st_uid != os.geteuid():
            return False
        lock = os.open(RUN_LOCK, _LOCK, dir_fd=run)
        try:
            if not stat.S_ISREG(os.fstat(lock).st_mode):
                return False
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _empty(run, [_MOST_FILES], _DEEPEST)
        finally:
            os.close(lock)
        os.rmdir(name, dir_fd=parent)
    except OSError:  # no lock, one that is held, or something that may not be removed
        return False
    finally:
        os.close(run)
    return True


def _empty(folder: int, left: list[int], depth: int) -> None:
    """Remove what is in the folder, the lock last: what has no lock would never be removed."""
    if depth < 0:
        raise OSError("too deep for a run")
    names = sorted(os.listdir(folder), key=lambda name: name == RUN_LOCK)
    for name in names:
        left[0] -= 1
        if left[0] < 0:
            raise OSError("too many files for a run")
        with contextlib.suppress(IsADirectoryError, PermissionError):
            os.unlink(name, dir_fd=folder)
            continue
        below = os.open(name, _FOLDER, dir_fd=folder)
        try:
            _empty(below, left, depth - 1)
        finally:
            os.close(below)
        os.rmdir(name, dir_fd=folder)
