"""Which rank writes to a file: the first process below the launcher that has it as its stdout or stderr."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

from hangdoc.capture.read import procfs
from hangdoc.capture.read.logs import log_files
from hangdoc.capture.safe.open_files import regular_file
from hangdoc.model.launch import number

_MOST_PROCESSES = 1024
"""That one search asks. Judgement."""


def ranks_of_files(launcher: int) -> dict[tuple[int, int], int]:
    """Device and inode → rank, of the files that processes with a rank write to."""
    found: dict[tuple[int, int], int] = {}
    for pid, rank in _ranks(procfs.descendants(launcher, procfs.table())[1:]):
        for stream in (1, 2):
            with contextlib.suppress(OSError):
                status = os.stat(f"/proc/{pid}/fd/{stream}")  # noqa: PTH116 - what it has open, not what a path names
                found.setdefault((status.st_dev, status.st_ino), rank)
    return found


def files_of_ranks(launcher: int) -> Iterator[tuple[str, int, int]]:
    """(path, descriptor, rank) of the files that processes with a rank write to; the descriptor is the caller's."""
    for pid, rank in _ranks(_below(launcher)):
        for file in log_files(pid):
            with contextlib.suppress(OSError, ValueError):
                yield file.path, regular_file(file.path, identity=file.identity), rank


def _below(launcher: int) -> list[int]:
    """What the main threads have started, from the launcher down: cheap, and where launchers start their ranks."""
    found: list[int] = []
    level = [launcher]
    while level and len(found) < _MOST_PROCESSES:
        level = [child for pid in level for child in procfs.children(pid)]
        found += level
    return found


def _ranks(pids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(pid, rank) of those that have one."""
    for pid in pids:
        rank = number((procfs.environment(pid) or {}).get("RANK", ""))
        if rank is not None:
            yield pid, rank
