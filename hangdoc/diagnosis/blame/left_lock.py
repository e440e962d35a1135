"""A lock that is a file, or a folder, which one rank took and left behind: the others try for it without an end."""

from __future__ import annotations

from hangdoc.diagnosis.context import Case
from hangdoc.model.process import OpenFile


def lock_files(case: Case, rank: int) -> tuple[OpenFile, ...]:
    """The lock files that the rank's locals name."""
    process = case.ranks[rank].process
    return process.named_locks if process is not None else ()
