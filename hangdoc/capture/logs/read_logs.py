"""Makes one snapshot of the logs and pasted stacks that somebody has: mode 'log'.

What a file is, is found from what stands in it. Every file is sifted once, as a stream; the facts of all files together
are those of one job, and of its last attempt where it was restarted.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from hangdoc.capture.dumps.find_files import find_files
from hangdoc.capture.dumps.sources import sources_of
from hangdoc.capture.logs import stacks
from hangdoc.capture.logs.carried import ReadFile, telling_lines, versions_in
from hangdoc.capture.logs.facts import FOLDED, MARKERS, facts_of, ranks_in, tells
from hangdoc.capture.logs.lines import lines_of
from hangdoc.capture.logs.processes import ranks_of
from hangdoc.capture.logs.sift import MAX_UNPACKED, sift
from hangdoc.capture.read.ras_answers import parse_status
from hangdoc.capture.safe.text import clean
from hangdoc.model.codec import SNAPSHOT_SUFFIX
from hangdoc.model.logged import (
    Behind,
    Call,
    LogFile,
    Overdue,
    Raised,
)
from hangdoc.model.nccl import NcclStatus
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot, Unavailable

_RAS = (b"\nCommunicators...", b'"communicators"')
"""What an answer of NCCL's service has, in words and in JSON."""
_MOST_FILES = 20_000
_LOOKED_AT = 20
"""Lines at the end that tell text from other data."""
STANDARD_INPUT = Path("-")


def read_logs(
    paths: Sequence[Path],
    progress: Callable[[int, int], None] | None = None,
    *,
    source: Path | None = None,
    limit: int | None = None,
) -> JobSnapshot | None:
    """The job that the files at ``paths``, and in folders there, tell of; None if nothing in them is of a job's.

    Path('-') is standard input. ``source``: a folder with a copy of the program's files. ``progress`` is called with
    how many bytes of how many have been read. ``limit``: bytes unpacked of one file. A file that cannot be read is a
    note (``Unavailable``). Raises ``OSError`` where a path itself cannot be looked at.
    """
    read, notes = read_files(paths, progress, limit)
    return snapshot_of(read, notes, source)


def read_files(
    paths: Sequence[Path], progress: Callable[[int, int], None] | None = None, limit: int | None = None
) -> tuple[list[ReadFile], list[Unavailable]]:
    """What is of interest in the files, before any fact is found in it, and notes on those that cannot be read."""
    files, notes = _files(paths)
    total = sum(size for _, _, size in files)
    done = 0
    read: list[ReadFile] = []
    for path, shown, size in files:
        tell = None if progress is None or not total else partial(_tell, progress, done, total)
        found = _read_at(path, clean(shown), tell, limit or MAX_UNPACKED)
        done += size
        if isinstance(found, Unavailable):
            notes.append(found)
        else:
            read.append(found)
    return read, notes


def _tell(progress: Callable[[int, int], None], before: int, total: int, read: int) -> None:
    progress(min(before + read, total), total)


def _files(paths: Sequence[Path]) -> tuple[list[tuple[Path, str, int]], list[Unavailable]]:
    """(path, name to show, size) of every file, and notes on what was left out."""
    found: list[tuple[Path, str, int]] = []
    notes: list[Unavailable] = []
    for path in paths:
        if path == STANDARD_INPUT:
            found.append((path, "standard input", 0))
        elif not path.is_dir():
            found.append((path, path.name, path.stat().st_size))
        else:
            listed, more = find_files(path)
            # What hangdoc has saved quotes logs, and is none.
            texts = (each for each in listed if not each.path.endswith(SNAPSHOT_SUFFIX))
            found += [(path / each.path, each.path, each.size) for each in texts]
            if more:
                notes.append(
                    Unavailable("log", f"{path.name} holds more files than are looked at", "Give fewer files.")
                )
    if len(found) > _MOST_FILES:
        why = f"{len(found) - _MOST_FILES} of {len(found)} files were not read"
        notes.append(Unavailable("log", why, "Give fewer files."))
    return found[:_MOST_FILES], notes


def _read_at(path: Path, shown: str, progress: Callable[[int], None] | None, limit: int) -> ReadFile | Unavailable:
    if path == STANDARD_INPUT:
        return _read(sys.stdin.buffer, shown, time.time(), progress, limit)
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(opened, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return Unavailable("log", f"{shown} is no regular file")
            return _read(file, shown, status.st_mtime, progress, limit)
    except OSError as error:
        return Unavailable("log", f"{shown} could not be read: {error.strerror}", "Check its permissions.")


def _read(file: BinaryIO, shown: str, modified: float, progress: Callable[[int], None] | None, limit: int) -> ReadFile:
    sifted = sift(file, MARKERS, progress, limit)
    kept, tail = list(lines_of(shown, sifted.kept)), list(lines_of(shown, sifted.tail))
    folded = any(FOLDED in line.text for line in kept)
    kind = "text" if not any(b"\0" in line for _, line in sifted.tail[-_LOOKED_AT:]) else "binary"
    note = LogFile(shown, kind, sifted.lines, sifted.size, sifted.cut, folded, modified)
    document = sifted.whole.lstrip()[:1] in (b"{", b"[")
    status = _ras(sifted.whole) if any(word in sifted.whole for word in _RAS) else None
    return ReadFile(note, kept, tail, status, stacks.stacks_in_json(shown, sifted.whole) if document else [])


def _ras(text: bytes) -> NcclStatus | None:
    try:
        return parse_status(text.decode("utf-8", "replace"))
    except ValueError:
        return None


def snapshot_of(read: Sequence[ReadFile], notes: Sequence[Unavailable], source: Path | None) -> JobSnapshot | None:
    """The job that these files tell of together, as ``read_logs``."""
    logged, world = facts_of(read)
    logged = replace(logged, lines=telling_lines(logged, read))
    modified = max((each.file.modified for each in read), default=0.0)
    nccl = next((each.nccl for each in read if each.nccl is not None), None)
    if not tells(logged) and nccl is None:
        return None
    seen = ranks_of(logged.stacks, modified, world)
    known = {rank.rank: rank for rank in seen.ranks}
    for rank in ranks_in(logged):
        known.setdefault(rank, RankSnapshot(rank, "", "log", world_size=world))
    told: tuple[Overdue | Raised | Behind | Call, ...]
    told = (*logged.overdue, *(r for r in logged.raised if not r.follows), *logged.behind, *logged.calls)
    sources, sourceless = sources_of((*seen.stacks, *(fact.stack for fact in told)), source, modified)
    cut = (Unavailable("log", f"{each.file.path}: {each.file.cut}") for each in read if each.file.cut)
    return JobSnapshot(
        taken=modified,
        mode="log",
        world_size=world or seen.world_size,
        ended=not seen.ranks,
        ranks=tuple(known[rank] for rank in sorted(known)),
        nccl=nccl,
        logged=logged,
        sources=sources,
        versions=versions_in([line for each in read for line in each.lines]),
        unavailable=(*notes, *cut, *seen.unavailable, *sourceless),
    )
