"""The last lines a rank wrote, where its output goes to a file (as with torchrun --log-dir or --tee)."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field

from hangdoc.capture.read import procfs
from hangdoc.capture.safe.open_files import regular_file
from hangdoc.capture.safe.text import clean, read_link
from hangdoc.model.masking import mask_lines
from hangdoc.model.snapshot import LogTail
from hangdoc.model.told_errors import told_errors

# What is kept of a log: a traceback and some lines before it. Judgement.
_MAX_LINES = 40
_MAX_BYTES = 64 << 10
_MAX_LINE = 400
_MAX_TELLING = 8
_SAME_TIME = 2.0
"""Seconds by which a process's two streams may differ and still tell of the same moment. Judgement."""
_AT_ONCE = 0.3
"""The same, where what was written first tells of no error: a rank starts within a second. Judgement."""
_MOST_GENERATIONS = 16
"""How far above a rank its watcher may run: torchrun, a shell and a wrapper or two are between them. Judgement."""
_TELLING = ("EnforceNotMet", "enforce fail", "op.preamble.length <= op.nbytes", "Received data size doesn't match")
"""gloo's name for a check that failed, and its words for sizes that differ (torch 2.13)."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file that a process writes to. ``identity``: device and inode, as its path may name another file later."""

    path: str = field(compare=False)
    identity: tuple[int, int]


def log_files(pid: int) -> tuple[LogFile, ...]:
    """The regular files that the process's stderr and stdout go to, stderr first, as seen from here.

    Ask while the process lives: the files can be read after it is gone.
    """
    found: list[LogFile] = []
    for fd in (2, 1):
        link = f"/proc/{pid}/fd/{fd}"
        target = read_link(link)
        try:
            if target is None:
                continue
            status = os.stat(link)  # noqa: PTH116 - what the process has open, not what its path names
        except OSError:
            continue
        identity = (status.st_dev, status.st_ino)
        for path in (target, f"/proc/{pid}/root{target}"):
            if any(file.identity == identity for file in found):
                break  # both go there
            try:
                os.close(regular_file(path, identity=identity))
            except (OSError, ValueError):
                continue
            found.append(LogFile(path, identity))
    return tuple(found)


def read_log(files: tuple[LogFile, ...]) -> LogTail | None:
    """The tail of the first of ``files`` that holds text: at most 40 lines, control characters escaped.

    A file that was written to well after the others comes before them: a warning of the start is not the last word. One
    that tells of errors may lie further back than another.
    """
    for file in _latest_first(files):
        lines = tail_lines(file)[-_MAX_LINES:]
        if lines:
            return LogTail(clean(file.path), lines)
    return None


def _latest_first(files: tuple[LogFile, ...]) -> list[LogFile]:
    """The files in their order, those behind that were written to clearly before another one."""
    written: dict[LogFile, float] = {}
    for file in files:
        with contextlib.suppress(OSError):
            status = os.stat(file.path, follow_symlinks=False)  # noqa: PTH116
            written[file] = status.st_mtime if status.st_size else 0.0
    latest = max(written.values(), default=0.0)

    def lies_back(file: LogFile) -> bool:
        before = latest - written.get(file, 0.0)
        return before > _SAME_TIME or (before > _AT_ONCE and not any(told_errors(tail_lines(file))))

    return sorted(files, key=lies_back)


def telling_lines(files: tuple[LogFile, ...]) -> LogTail | None:
    """The lines in the last 64 KiB of the first of ``files`` that say why native code ended a process."""
    for file in files:
        lines = tuple(line for line in tail_lines(file) if any(word in line for word in _TELLING))[-_MAX_TELLING:]
        if lines:
            return LogTail(clean(file.path), lines)
    return None


def error_lines(files: tuple[LogFile, ...]) -> LogTail | None:
    """The lines in the last 64 KiB of the first of ``files`` that tell of exceptions and errors."""
    for file in files:
        lines = tuple(dict.fromkeys(told_errors(tail_lines(file))))[-_MAX_TELLING:]
        if lines:
            return LogTail(clean(file.path), lines)
    return None


def tail_lines(file: LogFile) -> tuple[str, ...]:
    """The lines in the last 64 KiB of a file, masked and escaped."""
    try:
        fd = regular_file(file.path, identity=file.identity)
    except (OSError, ValueError):
        return ()
    try:
        offset = max(0, os.fstat(fd).st_size - _MAX_BYTES)
        data = os.pread(fd, _MAX_BYTES, offset)
    except OSError:
        return ()
    finally:
        os.close(fd)
    lines = data.decode("utf-8", "replace").splitlines()
    if offset and lines:
        del lines[0]  # its beginning lies before the part that was read
    return tuple(clean(line, _MAX_LINE) for line in mask_lines([line.rstrip() for line in lines]))


def watcher_logs(pid: int, probe_folder: str) -> tuple[LogFile, ...]:
    """Where the hangdoc that watches the rank writes to: the first process above it without its probe's variable.

    ``probe_folder``: the rank's HANGDOC_PROBE; '' where no hangdoc watches it.
    """
    above: int | None = pid
    for _ in range(_MOST_GENERATIONS if probe_folder else 0):
        entry = procfs.stat(above) if above is not None else None
        above = entry.ppid if entry is not None else None
        if above is None or (procfs.environment(above) or {}).get("HANGDOC_PROBE") != probe_folder:
            break
    return log_files(above) if probe_folder and above is not None and above > 1 else ()
