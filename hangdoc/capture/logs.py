"""The last lines a rank wrote, where its output goes to a file (as with torchrun --log-dir or --tee)."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hangdoc.capture.command_line import line_without_secrets
from hangdoc.capture.text import clean, read_link
from hangdoc.model.snapshot import LogTail

_MAX_LINES = 40
_MAX_BYTES = 64 << 10
_MAX_LINE = 400
_MAX_TELLING = 8
_TELLING = ("EnforceNotMet", "enforce fail")
"""gloo's name for a check that failed (torch 2.13): sizes that differ between ranks, most of all."""


def log_paths(pid: int) -> tuple[str, ...]:
    """The regular files that the process's stderr and stdout go to, stderr first, as seen from here.

    Ask while the process lives: the paths can be read after it is gone.
    """
    found: list[str] = []
    for fd in (2, 1):
        link = Path(f"/proc/{pid}/fd/{fd}")
        target = read_link(str(link))
        try:
            if target is None or not link.is_file():
                continue
            for path in (target, f"/proc/{pid}/root{target}"):
                if path in found:
                    break  # both go there
                if Path(path).exists() and link.samefile(path):
                    found.append(path)
                    break
        except OSError:
            continue
    return tuple(found)


def read_log(paths: tuple[str, ...]) -> LogTail | None:
    """The tail of the first of ``paths`` that holds text: at most 40 lines, control characters escaped."""
    for path in paths:
        lines = _tail(path)
        if lines:
            return LogTail(clean(path), lines)
    return None


def telling_lines(paths: tuple[str, ...]) -> LogTail | None:
    """The lines in the last 64 KiB of the first of ``paths`` that say why native code ended a process."""
    for path in paths:
        lines = tuple(line for line in _read(path) if any(word in line for word in _TELLING))[-_MAX_TELLING:]
        if lines:
            return LogTail(clean(path), lines)
    return None


def _tail(path: str) -> tuple[str, ...]:
    return _read(path)[-_MAX_LINES:]


def _read(path: str) -> tuple[str, ...]:
    try:
        # O_NONBLOCK: a path remembered from a rank may be a FIFO by now.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ()
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return ()
        offset = max(0, status.st_size - _MAX_BYTES)
        data = os.pread(fd, _MAX_BYTES, offset)
    except OSError:
        return ()
    finally:
        os.close(fd)
    lines = data.decode("utf-8", "replace").splitlines()
    if offset and lines:
        del lines[0]  # its beginning lies before the part that was read
    return tuple(clean(line_without_secrets(line.rstrip()), _MAX_LINE) for line in lines)
