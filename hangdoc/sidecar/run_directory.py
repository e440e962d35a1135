"""Where a watch keeps its files: a short socket folder for the probes, a run directory made when needed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from hangdoc.capture.safe.scratch import LOCK_FILE, Scratch, sweep
from hangdoc.errors import HangdocError, WatcherFailed
from hangdoc.model.codec import write_atomically

WATCHER_FILE = LOCK_FILE
POINTER_FILE = "probe-sockets"
RUN_LOCK = ".running"
"""A file in the directory of a run that is locked as long as the run lasts."""
# sun_path holds 108 bytes; '/4194304.sock' and the final zero take 14.
_LONGEST_FOLDER = 94
_ROOM = 1 << 20


def new_run_id() -> str:
    """Sorts by time, unique on a shared disk: 20251120-112400-4711-9f3a2c."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{secrets.token_hex(3)}"


class SocketFolder:
    """The private folder where ranks bind their sockets and leave their last words.

    ``watcher.pid`` names us, and stays locked as long as we live: whoever can lock it knows that we are gone.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Raises ``WatcherFailed`` where no short private folder can be made."""
        self._parents = _parents(environment)
        self._scratch = _make_private_folder(self._parents)
        self.path = self._scratch.path
        self.announced: Path | None = self.path
        """The value of HANGDOC_PROBE, by which the ranks' probes find the folder."""

    def tidy(self) -> None:
        """Remove the folders of watches that were killed."""
        for parent in self._parents:
            sweep(parent)

    def close(self) -> None:
        """Remove the folder and the files that probes leave in it, nothing else.

        A rank that outlives the launcher may still write there; then it stays: it is private and tiny.
        """
        self._scratch.close()


class NoSocketFolder:
    """Replaces the folder if none can be made: the ranks have no probes, and are watched only from outside."""

    path = Path(os.devnull) / "none"
    announced: Path | None = None

    def tidy(self) -> None:
        """There is nothing to tidy."""

    def close(self) -> None:
        """There is nothing to remove."""


def living_watcher(environment: Mapping[str, str], variable: str) -> int | None:
    """Pid of the hangdoc that watches us already, if one does."""
    folder = environment.get(variable)
    if not folder:
        return None
    try:
        descriptor = os.open(Path(folder) / WATCHER_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        text = os.read(descriptor, 32).split()
        return int(text[0]) if text and text[0].isdigit() else None
    else:
        return None  # the lock was free: its owner is gone
    finally:
        os.close(descriptor)


DEFAULT_PARENT = ".hangdoc"
"""The folder, in the working directory, that holds the runs where --run-dir does not say otherwise."""


class RunDirectory:
    """``.hangdoc/<run id>``: snapshots and diagnoses of the stalls of one run, for the user's eyes only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket_folder: Path | None = None
        """Where the ranks' sockets are, which a file in the directory will name."""
        self._locked: int | None = None

    def check(self) -> None:
        """See that the directory can be made, without making it. Raises ``WatcherFailed``."""
        try:
            existing = next(folder for folder in (self.path, *self.path.absolute().parents) if folder.exists())
            is_folder = stat.S_ISDIR(existing.stat().st_mode)
        except OSError as error:
            raise self._failure(error.strerror or str(error)) from error
        if not is_folder:
            raise self._failure(f"{existing} is not a directory")
        if not os.access(existing, os.W_OK | os.X_OK):
            raise self._failure(f"{existing} is not writable")
        longest = os.pathconf(existing, "PC_NAME_MAX")
        if any(len(os.fsencode(part)) > longest for part in self.path.parts):
            raise self._failure("a part of its name is too long")

    def make(self) -> Path:
        """The directory, made now if it is not there yet (mode 0700). Raises ``HangdocError``."""
        try:
            if not self.path.is_dir():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise HangdocError(
                f"cannot make {self.path}: {error.strerror or error}", "choose another with --run-dir DIR"
            ) from error
        if self.path.parent.name == DEFAULT_PARENT:
            self._lock()
            with contextlib.suppress(OSError):  # both only spare the user a look or a line
                self._announce_among_runs()
        pointer = self.path / POINTER_FILE
        if self.socket_folder is not None and not pointer.exists():
            write_atomically(pointer, f"{self.socket_folder}\n".encode(), mode=0o600)
        return self.path

    def close(self) -> None:
        """Let go of the lock: the run has ended."""
        if self._locked is not None:
            os.close(self._locked)
            self._locked = None

    def _lock(self) -> None:
        """Hold RUN_LOCK as long as the run lasts, so that no other watch removes the directory as an old one."""
        if self._locked is not None:
            return
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with contextlib.suppress(OSError):  # without it, nobody takes the run for one that has ended
            descriptor = os.open(self.path / RUN_LOCK, flags, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
                (self.path / RUN_LOCK).unlink()
                raise
            self._locked = descriptor

    def _announce_among_runs(self) -> None:
        """Point `latest` beside it to this run, and keep git from offering any run for a commit."""
        ignored = self.path.parent / ".gitignore"
        if not os.path.lexists(ignored):
            write_atomically(ignored, b"*\n")
        link = self.path.parent / "latest"
        if link.is_symlink() or not os.path.lexists(link):
            fresh = self.path.parent / f".latest-{os.getpid()}"
            fresh.symlink_to(self.path.name)
            fresh.replace(link)

    def _failure(self, why: str) -> WatcherFailed:
        return WatcherFailed(f"cannot use {self.path} as the run directory: {why}", "choose another with --run-dir DIR")


def _parents(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The folders that may hold ours, the best first."""
    parents = [environment.get("XDG_RUNTIME_DIR") or "", "/tmp"]  # noqa: S108 - what is made there is private
    with contextlib.suppress(OSError):  # there is no place for temporary files at all
        parents.append(tempfile.gettempdir())
    return tuple(dict.fromkeys(parent for parent in parents if os.path.isabs(parent)))  # noqa: PTH117


def _make_private_folder(parents: Sequence[str]) -> Scratch:
    reasons = []
    for parent in sorted(parents, key=lambda parent: not _has_room(parent)):
        try:
            scratch = Scratch(parent)
        except OSError as error:
            reasons.append(f"{parent}: {error.strerror or error}")
            continue
        if len(os.fsencode(scratch.path)) <= _LONGEST_FOLDER:
            return scratch
        scratch.close()
        reasons.append(f"{parent}: too long for a socket's path")
    raise WatcherFailed(
        f"no folder for the ranks' sockets ({'; '.join(reasons)})",
        "make /tmp writable or set XDG_RUNTIME_DIR to a short private folder",
    )


def _has_room(parent: str) -> bool:
    """True if the last words of some ranks will fit."""
    try:
        there = os.statvfs(parent)
    except OSError:
        return False
    return there.f_bavail * there.f_frsize >= _ROOM
