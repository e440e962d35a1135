"""The folder of a run's logs: ``logs`` in its run directory, for the user's eyes only.

    stdout.log, stderr.log                      what the command writes, and what it starts without files
    <torchrun's id>/attempt_0/3/stdout.log      what local rank 3 writes, as torchrun lays it out (torch 1.9 to 2.13)

The job may do to the folder what it likes meanwhile: every file is opened below the one descriptor that was made here,
no link is followed, and only regular files of our user's are read.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hangdoc.errors import WatcherFailed
from hangdoc.sidecar.logs.lines import Reader, Splitter

STREAMS = ("stdout.log", "stderr.log")
MOST_FILES = 512
"""Files that are read at once; each takes a descriptor, of which a process usually has 1024."""
_NAME = "logs"
_MOST_NAMES = 100
_MOST_FOLDERS = 4096
"""Folders that one search looks into. Judgement: ten times the ranks of the largest host."""
_LARGEST_LAG = 32 << 20
_KEPT = 1 << 20
"""Bytes that the stream may lag behind a file, and how many are left of them when it skips. Judgement: a terminal shows
some megabytes a second."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_ATTEMPT = re.compile(r"attempt_\d{1,6}")
_LAYOUT = re.compile(r"(?P<attempt>.*/attempt_\d{1,6})/(?P<local>\d{1,6})/(?P<name>stdout|stderr)\.log")

Identity = tuple[int, int]
"""Device and inode: what a file is, whatever its path names later."""


@dataclass(slots=True, eq=False)
class Attempt:
    """One start of all ranks by torchrun. ``base``: what a local rank lacks to its rank; None until one is known."""

    place: str
    local_ranks: set[int] = field(default_factory=set)
    base: int | None = None

    def rank(self, local: int) -> int:
        """The rank of a local one; on the first host they are the same."""
        return local + (self.base or 0)

    def ranks(self) -> frozenset[int]:
        """All its ranks."""
        return frozenset(map(self.rank, self.local_ranks))


class Tail:
    """A file that is read as it grows. ``local``: the local rank that writes it; None: the command."""

    def __init__(self, descriptor: int, path: str, attempt: Attempt | None = None, local: int | None = None) -> None:
        status = os.fstat(descriptor)
        self.identity: Identity = (status.st_dev, status.st_ino)
        self.path = path
        self.attempt = attempt
        self.local = local
        self.stderr = path.endswith(STREAMS[1])
        self.splitter = Splitter()
        self.reader: Reader | None = None
        self.skipped = 0
        """Bytes that the last ``read`` left out, as the stream lagged too far behind."""
        self._descriptor = descriptor
        self._at = 0

    def written(self) -> int:
        """When it was last written to, in nanoseconds; -1 if nothing has come since the last ``read``."""
        try:
            status = os.fstat(self._descriptor)
        except OSError:
            return -1
        return status.st_mtime_ns if status.st_size != self._at else -1

    def read(self, most: int) -> bytes:
        """At most ``most`` further bytes; none if there are none now."""
        self.skipped = 0
        try:
            size = os.fstat(self._descriptor).st_size
            if size < self._at:
                self._at = 0  # emptied, and begun anew
            if size - self._at > _LARGEST_LAG:
                self.skipped = size - self._at - _KEPT
                self._at += self.skipped
            data = os.pread(self._descriptor, most, self._at) if size > self._at else b""
        except OSError:
            return b""
        self._at += len(data)
        return data

    def is_gone(self) -> bool:
        """True if the file has been deleted."""
        try:
            return os.fstat(self._descriptor).st_nlink == 0
        except OSError:
            return True

    def close(self) -> None:
        """Read no more."""
        os.close(self._descriptor)


class LogFolder:
    """``path`` is absolute. Close it when nothing is read any more."""

    def __init__(self, run_directory: Path) -> None:
        """Make a new one in ``run_directory``. Raises ``WatcherFailed``."""
        try:
            self.path, self._descriptor = _make(run_directory.absolute())
            self.outputs = tuple(_above_standard(os.open(n, _MAKE, 0o600, dir_fd=self._descriptor)) for n in STREAMS)
            self.tails = [Tail(self._open(name), str(self.path / name)) for name in STREAMS]
        except OSError as error:
            raise WatcherFailed(
                f"cannot make the files of --logs in {run_directory}: {error.strerror or error}",
                "choose another place with --run-dir DIR, or leave out --logs",
            ) from error
        self.attempts: dict[str, Attempt] = {}
        """In the order in which they were found, by their places."""
        self._done: set[str] = set()
        """The places of attempts that have been read to their ends."""

    def let_go(self) -> None:
        """The command has its files: they are closed here."""
        for descriptor in self.outputs:
            os.close(descriptor)
        self.outputs = ()

    def search(self) -> bool:
        """Find what torchrun has made; True if there are new ranks."""
        known = {tail.identity for tail in self.tails}
        before = sum(len(attempt.local_ranks) for attempt in self.attempts.values())
        for run, attempt, local in self._rank_folders():
            place = str(self.path / run / attempt)
            self.attempt(place).local_ranks.add(local)
            for name in STREAMS:
                with contextlib.suppress(OSError):
                    self._add(self._open(f"{run}/{attempt}/{local}/{name}"), place, local, name, known)
        return sum(len(attempt.local_ranks) for attempt in self.attempts.values()) != before

    def add_elsewhere(self, path: str, descriptor: int, rank: int) -> bool:
        """Read a file that torchrun has laid out in another folder, which ``rank`` writes; False for any other."""
        found = _LAYOUT.fullmatch(path)
        known = {tail.identity for tail in self.tails}
        if found is None:
            os.close(descriptor)
            return False
        local = int(found["local"])
        if self._add(descriptor, found["attempt"], local, f"{found['name']}.log", known):
            attempt = self.attempt(found["attempt"])
            attempt.local_ranks.add(local)
            attempt.base = rank - local
        return True

    def attempt(self, place: str) -> Attempt:
        """The one at this place."""
        return self.attempts.setdefault(place, Attempt(place))

    def ended(self) -> list[Tail]:
        """Files that will not grow: those of attempts before the latest, and those that torchrun has deleted to begin
        the same attempt anew. They are to be read to their ends and dropped."""
        latest = {os.path.dirname(place): place for place in self.attempts}  # noqa: PTH120 - of names, not files
        earlier = [place for place in self.attempts if latest[os.path.dirname(place)] != place]  # noqa: PTH120
        before = {self.attempts.pop(place).place for place in earlier}
        self._done |= before
        return [tail for tail in self.tails if tail.is_gone() or (tail.attempt and tail.attempt.place in before)]

    def drop(self, tails: Sequence[Tail]) -> None:
        """Read these no more."""
        for tail in list(tails):
            self.tails.remove(tail)
            tail.close()

    def close(self) -> None:
        """Read nothing more."""
        self.let_go()
        self.drop(self.tails)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _add(self, descriptor: int, place: str, local: int, name: str, known: set[Identity]) -> bool:
        attempt = self.attempt(place)
        tail = Tail(descriptor, f"{place}/{local}/{name}", attempt, local)
        if tail.identity in known or len(self.tails) >= MOST_FILES:
            tail.close()
            return False
        if any(other.path == tail.path for other in self.tails):
            attempt.base = None  # begun anew: this host may have other ranks now
        known.add(tail.identity)
        self.tails.append(tail)
        return True

    def _rank_folders(self) -> Iterator[tuple[str, str, int]]:
        """(torchrun's folder, attempt, local rank), in order."""
        left = _MOST_FOLDERS
        for run in self._folders("."):
            attempts = [name for name in self._folders(run) if _ATTEMPT.fullmatch(name)]
            for attempt in sorted(attempts, key=lambda name: int(name.partition("_")[2])):
                if str(self.path / run / attempt) in self._done:
                    continue
                for local in sorted(int(name) for name in self._folders(f"{run}/{attempt}") if _is_number(name)):
                    left -= 1
                    if left < 0:
                        return
                    yield run, attempt, local

    def _folders(self, place: str) -> list[str]:
        with contextlib.suppress(OSError):
            descriptor = self._walk(place)
            try:
                with os.scandir(descriptor) as entries:
                    return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
            finally:
                os.close(descriptor)
        return []

    def _walk(self, place: str) -> int:
        """A descriptor of a folder below ours, to which no link leads."""
        descriptor = os.open(".", _FOLDER, dir_fd=self._descriptor)
        for part in place.split("/"):
            try:
                below = os.open(part, _FOLDER, dir_fd=descriptor)
            finally:
                os.close(descriptor)
            descriptor = below
        return descriptor

    def _open(self, place: str) -> int:
        folder, _, name = place.rpartition("/")
        above = self._walk(folder or ".")
        try:
            descriptor = os.open(name, _READ, dir_fd=above)
        finally:
            os.close(above)
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
            return descriptor
        os.close(descriptor)
        raise PermissionError(f"{place} is no file of ours")


def _make(run_directory: Path) -> tuple[Path, int]:
    """A new folder of mode 0700, and its descriptor. A run directory of the user's may have one of an earlier run."""
    parent = os.open(run_directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for number in range(1, _MOST_NAMES):
            name = _NAME if number == 1 else f"{_NAME}-{number}"
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=parent)
                return run_directory / name, os.open(name, _FOLDER, dir_fd=parent)
    finally:
        os.close(parent)
    raise FileExistsError(f"{_MOST_NAMES} runs have left their logs in it")


def _above_standard(descriptor: int) -> int:
    """The descriptor, or a copy of it that is none of stdin, stdout and stderr, which may have been closed."""
    if descriptor > 2:
        return descriptor
    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return copy


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) < 7
