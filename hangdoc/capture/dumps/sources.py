"""The source of the functions on the stacks of dumps: from where the job had its files, or from a copy of them.

A dump is read long after the job, perhaps elsewhere. So a file counts only if it fits the stacks; and one that lies
where the job had it, only if it has not been changed since.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path, PurePosixPath

from hangdoc.capture.read.source_files import FileText, NoSourceError, contents_below, file_text
from hangdoc.capture.read.sources import collect
from hangdoc.capture.safe.open_files import User, as_user
from hangdoc.model.process import Stack
from hangdoc.model.snapshot import SourceText, Unavailable

_CLOCK_SLACK = 60.0
"""Seconds by which the clock of the file's host may be ahead of the job's; chosen by hand."""
_MOST_PARTS = 32
"""Of a path, the last ones, that are searched for in the copy; chosen by hand."""

_MOST_NAMED = 3
"""Files that are not here, in one note; chosen by hand."""
_NOT_HERE = "there is no such file here (name a folder that has a copy of it: --source DIR)"


def sources_of(
    stacks: Iterable[Stack], copy: Path | None, ended: float, owners: Collection[tuple[int, int]] = ()
) -> tuple[tuple[SourceText, ...], tuple[Unavailable, ...]]:
    """The source of the user functions on ``stacks``, and what is missing.

    ``copy``: a folder with the program's files, searched for the longest end of each path. ``ended``: Unix time of the
    last call, 0 where it is not known. ``owners``: users and groups whose dumps these are. Where root looks, only files
    that they may read themselves are read in place: they can write any path into a dump.
    """
    others = [User(user, group) for user, group in sorted(owners) if user != 0] if os.geteuid() == 0 else []
    texts, missing = collect(stacks, (), read=lambda file: _read(file, copy, ended, others))
    return texts, _together(missing)


def _together(missing: tuple[Unavailable, ...]) -> tuple[Unavailable, ...]:
    """The notes, those of several files that are not here as one."""
    end = f": {_NOT_HERE}"
    gone = [note.why.removesuffix(end) for note in missing if note.why.endswith(end)]
    if len(gone) < 2:
        return missing
    others = tuple(note for note in missing if not note.why.endswith(end))
    names = ", ".join(dict.fromkeys(PurePosixPath(file).name for file in gone[:_MOST_NAMED]))
    more = f" and {len(gone) - _MOST_NAMED} more" if len(gone) > _MOST_NAMED else ""
    why = f"{len(gone)} of the job's files are not here ({names}{more}; name a folder that has a copy: --source DIR)"
    return (*others, Unavailable("source", why))


def _in_place(file: str, users: Sequence[User]) -> tuple[bytes, float]:
    """(the file's bytes, Unix time of its last change), if all ``users`` may read it. Raises OSError, ValueError."""

    def read() -> tuple[bytes, float]:
        return contents_below("/", "", file)

    for user in users[1:]:
        as_user(user, read)
    return as_user(users[0], read) if users else read()


def _read(file: str, copy: Path | None, ended: float, users: Sequence[User]) -> FileText:
    """The text of ``file``. Raises NoSourceError."""
    if file.startswith("<"):
        raise NoSourceError("typed in or generated, there is no file")
    if copy is not None:
        parts = [part for part in PurePosixPath(file).parts if part not in ("/", "..", ".")]
        for first in range(max(0, len(parts) - _MOST_PARTS), len(parts)):
            with contextlib.suppress(OSError, ValueError):
                return file_text(contents_below(str(copy), "", "/".join(parts[first:]))[0])
    if file.startswith("/"):
        try:
            data, changed = _in_place(file, users)
        except (OSError, ValueError):
            pass
        else:
            if ended and changed > ended + _CLOCK_SLACK:
                raise NoSourceError("edited since the dumps were made (name an older copy: --source DIR)")
            return file_text(data)
    if copy is not None:
        raise NoSourceError(f"there is no such file, and none in {copy} with the end of its path")
    raise NoSourceError(_NOT_HERE)
