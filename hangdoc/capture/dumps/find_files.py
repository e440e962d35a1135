"""The files in a folder that may be dumps: any name, in folders for each host, replica or run."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOST_DEPTH = 6
"""Folders below the one that was named: run, attempt, host, rank, and two more; chosen by hand."""
MOST_FILES = 50_000
"""That are looked at: a dump of every rank of the largest jobs; chosen by hand."""
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | os.O_NOFOLLOW

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
    """A file that may be a dump. ``path`` is relative to the folder that was named; ``written`` is Unix time."""

    path: str
    size: int
    written: float

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
    """The regular files in ``folder`` and below, by path, and whether there are more than ``MOST_FILES``.

    No link is followed, and nothing hidden looked at. Raises ``OSError`` where ``folder`` itself cannot be read.
    """
    found: list[DumpFile] = []
    for entry in _walk(folder):
        if len(found) == MOST_FILES:
            return found, True
        found.append(entry)
    return sorted(found, key=_in_order), False


def _in_order(file: DumpFile) -> list[tuple[int, str]]:
    """Numbers as numbers: trace_2 before trace_10."""
    parts = re.split(r"(\d+)", file.path)
    return [(int(part), "") if index % 2 and len(part) < 20 else (0, part) for index, part in enumerate(parts)]


def _walk(folder: Path) -> Iterator[DumpFile]:
    levels: list[tuple[str, int]] = [("", 0)]
    while levels:
        below, depth = levels.pop()
        try:
            entries = sorted(os.scandir(folder / below if below else folder), key=lambda entry: entry.name)
        except OSError:
            if not below:
                raise
            continue
        for entry in entries:
            if entry.name.startswith("."):
                continue
            path = f"{below}/{entry.name}" if below else entry.name
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISDIR(status.st_mode) and depth < MOST_DEPTH:
                levels.append((path, depth + 1))
            elif stat.S_ISREG(status.st_mode):
                yield DumpFile(path, status.st_size, status.st_mtime)


def open_file(folder: Path, file: DumpFile) -> int:
    """A descriptor of the regular file. Raises ``OSError``."""
    descriptor = os.open(folder / file.path, _READ)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("it is no regular file")
    return descriptor
