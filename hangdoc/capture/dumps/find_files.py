"""The files in a folder that may be dumps: any name, in folders for each host, replica or run."""

from __future__ import annotations

import itertools
import os
import re
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from hangdoc.capture.safe.open_files import regular_file

MOST_DEPTH = 6
"""Folders below the one that was named: run, attempt, host, rank, and two more; chosen by hand."""
MOST_FILES = 50_000
"""That are looked at: a dump of every rank of the largest jobs; chosen by hand."""
MOST_ENTRIES = 4 * MOST_FILES
"""Files, folders, links and whatever else there may be; chosen by hand."""

_SUFFIX = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,9}$")
_AFTER_RANK = re.compile(r"(?<![A-Za-z])rank[_=.-]?(\d+)(?![0-9])", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")
# What jobs leave beside their dumps, and nobody calls a dump.
_OTHER_SUFFIXES = (
    ".csv", ".err", ".hangdoc", ".lock", ".log", ".md", ".out", ".pt", ".pth", ".py", ".sh", ".toml", ".txt", ".yaml",
    ".yml",
)  # fmt: skip
_LIKE_A_DUMP = re.compile(r"\d$|trace|dump|flight|(?<![A-Za-z])rank", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DumpFile:
    """A file that may be a dump. ``path`` is relative to the folder that was named; ``written`` is Unix time.

    ``owner``: (user, group); None where it was not looked at.
    """

    path: str
    size: int
    written: float
    owner: tuple[int, int] | None = None

    @property
    def series(self) -> str:
        """Its name without the numbers, and the folder: files of one series belong together."""
        folder, _, name = self.path.rpartition("/")
        return f"{folder}/{_NUMBER.sub('#', name)}"

    @property
    def shape(self) -> str:
        """Its path without the numbers and suffixes: the dumps of all ranks have one."""
        folder, _, name = self.path.rpartition("/")
        return _NUMBER.sub("#", f"{folder}/{_stem(name)}")

    @property
    def looks_like_a_dump(self) -> bool:
        """By its name: what is no dump then is worth a word."""
        name = self.path.rpartition("/")[2]
        return not name.lower().endswith(_OTHER_SUFFIXES) and bool(_LIKE_A_DUMP.search(_stem(name)))

    def numbers(self) -> list[int]:
        """The numbers that may be the rank, the likeliest first: after 'rank', the others of the name from its end,
        those of its folder.

        Example: nccl_trace_rank_container-node02_5 → 5, 2; rank3_20251122.json.gz → 3, 20251122.
        """
        folder, _, name = self.path.rpartition("/")
        stem = _stem(name)
        found = [*_AFTER_RANK.findall(stem), *reversed(_NUMBER.findall(stem))]
        found += reversed(_NUMBER.findall(folder.rpartition("/")[2]))
        return list(dict.fromkeys(int(number) for number in found if len(number) < 20))


def _stem(name: str) -> str:
    """The name without its suffixes: trace_0.pkl.gz → trace_0."""
    while (match := _SUFFIX.search(name)) and match.start():
        name = name[: match.start()]
    return name


def find_files(folder: Path) -> tuple[list[DumpFile], bool]:
    """The regular files in ``folder`` and below, by path, and whether there are more than are looked at.

    No link is followed, and nothing hidden looked at. Raises ``OSError`` where ``folder`` itself cannot be read.
    """
    found: list[DumpFile] = []
    more = _look_through(folder, found)
    return sorted(found, key=_in_order), more


def _in_order(file: DumpFile) -> list[tuple[int, str]]:
    """Numbers as numbers: trace_2 before trace_10."""
    parts = re.split(r"(\d+)", file.path)
    return [(int(part), "") if index % 2 and len(part) < 20 else (0, part) for index, part in enumerate(parts)]


def _look_through(folder: Path, found: list[DumpFile]) -> bool:
    """Add the files to ``found``; True if there is more than is looked at.

    Others may change the folders meanwhile: none is opened through a link that was a folder a moment ago.
    """
    left = MOST_ENTRIES
    levels: list[tuple[str, int]] = [("", 0)]
    with _folder(folder) as top:
        while levels:
            below, depth = levels.pop()
            try:
                with _folder_below(top, below) as here, os.scandir(here) as entries:
                    some = sorted(itertools.islice(entries, left), key=lambda entry: entry.name)
                    shown = [(e.name, status) for e in some if not e.name.startswith(".") and (status := _status(e))]
            except OSError:
                if not below:
                    raise
                continue
            left -= len(some)
            for name, status in shown:
                path = f"{below}/{name}" if below else name
                if stat.S_ISDIR(status.st_mode) and depth < MOST_DEPTH:
                    levels.append((path, depth + 1))
                elif stat.S_ISREG(status.st_mode):
                    if len(found) == MOST_FILES:
                        return True
                    owner = (status.st_uid, status.st_gid)
                    found.append(DumpFile(path, status.st_size, status.st_mtime, owner))
            if not left:
                return True
    return False


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None


@contextmanager
def _folder(path: str | Path, flags: int = 0, inside: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | flags, dir_fd=inside)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _folder_below(top: int, below: str) -> Iterator[int]:
    """A descriptor of the folder at that path below ``top``, on which there is no link."""
    with ExitStack() as opened:
        here = top
        for part in below.split("/") if below else ["."]:
            here = opened.enter_context(_folder(part, os.O_NOFOLLOW, here))
        yield here


def open_file(folder: Path, file: DumpFile) -> int:
    """A descriptor of the regular file, to which no link leads. Raises ``OSError``."""
    below, _, name = file.path.rpartition("/")
    with _folder(folder) as top, _folder_below(top, below) as here:
        return regular_file(f"/proc/self/fd/{here}/{name}")
