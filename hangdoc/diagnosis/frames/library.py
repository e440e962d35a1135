"""Whose code is a file: the user's, or a library's? Installed ones are known by their paths; a torch or a Python that
was built where its sources lie is known by what the ranks said, or by the files on their stacks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

from hangdoc.diagnosis.frames.names import names
from hangdoc.model.frames import is_library_file
from hangdoc.model.process import Stack
from hangdoc.model.snapshot import JobSnapshot

_MOST_STACKS = 512

_roots: ContextVar[tuple[str, ...]] = ContextVar("library roots", default=())


def library(path: str) -> bool:
    """Is it library code: standard, installed or generated, in the job that is being looked at?"""
    return _library(path, _roots.get())


@lru_cache(maxsize=65536)
def _library(path: str, roots: tuple[str, ...]) -> bool:
    # Remembered: a snapshot names the same few files a hundred thousand times.
    return is_library_file(path, roots)


@contextmanager
def looking_at(job: JobSnapshot) -> Iterator[None]:
    """Let ``library`` know this job's folders of library code."""
    token = _roots.set(roots_of(job))
    try:
        yield
    finally:
        _roots.reset(token)


def roots_of(job: JobSnapshot) -> tuple[str, ...]:
    """The folders of library code that do not look like any."""
    found = {root.rstrip("/") for root in job.library_roots}
    for stack in _stacks(job):
        found.update(
            frame.file[: frame.file.rindex(end)] + "/torch"
            for frame in stack
            for end in names("inside_torch")
            if frame.file.endswith(end)
        )
    return tuple(sorted(root for root in found if root and not is_library_file(f"{root}/module.py")))


def _stacks(job: JobSnapshot) -> Iterator[Stack]:
    """Some of each rank's stacks: all ranks run the same torch."""
    for rank in job.ranks[:_MOST_STACKS]:
        last = rank.process.last if rank.process is not None else None
        if last is not None and last.main is not None:
            yield last.main.frames
        if rank.journal is not None:
            yield from rank.journal.stacks[:4]
