"""The text of a source file as one of the job's own processes sees it, with the rights of that process's user."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
import struct
import sys
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path, PurePosixPath
from types import CodeType
from typing import TypeVar

from hangdoc.capture.read import procfs
from hangdoc.capture.read.ran_code import Compiled, Layout
from hangdoc.capture.safe.open_files import User, as_user, mode_below, regular_file_below
from hangdoc.capture.safe.text import read_bytes

_T = TypeVar("_T")
# Larger files are no source. Judgement.
_MAX_FILE = 4 << 20
_MAX_ARCHIVE = 32 << 20
_MAX_COMPILED = 1 << 18
"""A file that the job writes and imports is smaller. Judgement."""
_CLOCK_SLACK = 1.0
"""Seconds: start times are rounded down to ticks, and a launcher may write its script just before it runs it."""
_PYC = struct.Struct("<4xIII")
"""The head of a compiled file (PEP 552): magic number, flags (0: by its source's stamp), time of change, size."""
_WORD = 0xFFFFFFFF
_LARGEST = 1 << 60
"""Larger whole numbers are not read from memory."""


class Kind(Enum):
    """What lies at a path, as far as an import may lead there."""

    FILE = "file"
    FOLDER = "folder"


@dataclass(frozen=True, slots=True)
class Witness:
    """A process as which files are found: with its root, its working folder and its user.

    ``started`` is Unix time: a file changed later is not the code that runs, if ``compiled`` does not say that it is.
    Only what ``user`` may read is read; None is a process that was gone before it could be asked.
    """

    pid: int
    started: float
    user: User | None
    compiled: Compiled = field(default_factory=Compiled)


class NoSourceError(Exception):
    """Why a file's source cannot be had, in a few words; ``remedy``: what would help, '' if nothing is known to."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class FileText:
    """The text of a source file, and 'sha256:…' of its bytes, by which two hosts' copies can be compared."""

    text: str
    digest: str


def file_text(data: bytes) -> FileText:
    """Of a file's bytes. Raises NoSourceError for an encoding that is not known."""
    return FileText(decode(data), f"sha256:{hashlib.sha256(data).hexdigest()}")


def read_source(file: str, witnesses: Sequence[Witness]) -> FileText:
    """The text of ``file`` as the first witness sees it that can. Raises NoSourceError."""
    if file.startswith("<"):
        return _command_text(file, witnesses)
    for root, start, witness in _places(witnesses):
        if not start and not file.startswith("/"):
            continue
        try:
            data, changed = _as_seen_by(witness, partial(contents_below, root, start, file))
        except (OSError, ValueError):
            continue
        edited = witness is not None and changed > witness.started + _CLOCK_SLACK
        if edited and not _was_imported(root, start, file, (data, changed), witnesses):
            raise NoSourceError("edited since the job started")
        return file_text(data)
    raise NoSourceError("there is no such file, or the job's user may not read it")


def _places(witnesses: Sequence[Witness]) -> Iterator[tuple[str, str, Witness | None]]:
    """(root, working folder, witness) of each place to look for a file: each witness's own, then ours."""
    for witness in witnesses:
        yield f"/proc/{witness.pid}/root", f"/proc/{witness.pid}/cwd", witness
    yield "/", "", min(witnesses, key=lambda witness: witness.started, default=None)


def _was_imported(root: str, start: str, file: str, found: tuple[bytes, float], witnesses: Sequence[Witness]) -> bool:
    """True if a file that was written after the start is the code that the witnesses run: the job wrote it itself, or
    imported it later. ``found``: its bytes, Unix time of its last change.

    Each code object that a witness has of it in memory must be in what it compiles to, as far as lines, columns, names,
    numbers and instructions tell; an edit within a text is overlooked.
    """
    running = [witness for witness in witnesses if witness.compiled.layouts.get(file)]
    return bool(running) and all(_is_compiled(root, start, file, found, each) for each in running)


def _is_compiled(root: str, start: str, file: str, found: tuple[bytes, float], witness: Witness) -> bool:
    layouts = witness.compiled.layouts[file]
    if sys.version_info[:2] != (3, witness.compiled.minor):
        # What another version makes of it, we cannot tell: but that interpreter may have kept it.
        kept = _kept(root, start, file, found, witness)
        return kept is not None and all(each.table in kept for each in layouts)
    made: dict[bytes, list[CodeType]] = {}
    for code in _compiled(found[0]):
        made.setdefault(code.co_linetable, []).append(code)
    return all(any(_is_like(code, each) for code in made.get(each.table, ())) for each in layouts)


def _kept(root: str, start: str, file: str, found: tuple[bytes, float], witness: Witness) -> bytes | None:
    """What an interpreter of that version has kept of this very source in `__pycache__`; another process of it may have
    made that later."""
    place = PurePosixPath(file)
    kept = str(place.parent / "__pycache__" / f"{place.stem}.cpython-3{witness.compiled.minor}.pyc")
    try:
        data, _ = _as_seen_by(witness, partial(contents_below, root, start, kept))
        head = _PYC.unpack_from(data)
    except (OSError, ValueError, NoSourceError, struct.error):
        return None
    return data if head == (0, int(found[1]) & _WORD, len(found[0]) & _WORD) else None


def _compiled(data: bytes) -> list[CodeType]:
    """The code objects of the source; [] where it is too long, or no source."""
    if len(data) > _MAX_COMPILED:
        return []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = [compile(data, "", "exec", dont_inherit=True, optimize=0)]
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
        return []
    for code in found:
        found += [each for each in code.co_consts if isinstance(each, CodeType)]
    return found


def _is_like(code: CodeType, found: Layout) -> bool:
    """True if nothing but texts may differ. What an instruction caches follows it as instructions of number 0."""
    if found.numbers != tuple(map(_shown, code.co_consts)) or len(found.bytecode) != len(code.co_code):
        return False
    if found.names != tuple(name if name.isascii() else "" for name in code.co_names):
        return False
    numbers, arguments = code.co_code[::2], code.co_code[1::2]
    together = zip(numbers, arguments, found.bytecode[1::2], strict=True)
    return all(mine == theirs for number, mine, theirs in together if number)


def _shown(value: object) -> str:
    """As ``Layout`` has it."""
    if isinstance(value, int) and not -_LARGEST < value < _LARGEST:
        return ""
    return repr(value) if value is None or isinstance(value, int | float) else ""


def _as_seen_by(witness: Witness | None, read: Callable[[], _T]) -> _T:
    """What ``read`` returns with the rights of the witness's user: a program may put any path into a frame.

    Raises PermissionError for a witness whose user is not known, and for another user's if we are not root.
    """
    if witness is None:
        return read()  # of a job that is over, with the rights of the user who watched it
    if witness.user is None:
        if os.geteuid() != 0:
            return read()  # only root sees more than its own user's processes and files
        raise PermissionError(errno.EPERM, "the process was gone before its user could be read")
    return as_user(witness.user, read)


def contents_below(root: str, start: str, file: str) -> tuple[bytes, float]:
    """(the file's bytes, Unix time of its last change). Raises OSError, and NoSourceError if it is too large."""
    try:
        descriptor = regular_file_below(root, file, start=start)
    except NotADirectoryError:
        return _from_archive(root, start, file)
    with open(descriptor, "rb") as stream:
        status = os.fstat(stream.fileno())
        if status.st_size > _MAX_FILE:
            raise NoSourceError("larger than source is")
        return stream.read(_MAX_FILE), status.st_mtime


def kind_of(path: str, witnesses: Sequence[Witness]) -> Kind | None:
    """What lies at ``path`` as the first witness sees it whose root can be seen; nothing is opened."""
    for root, start, witness in _places(witnesses):
        if not start and not path.startswith("/"):
            continue
        try:
            mode = _as_seen_by(witness, partial(mode_below, root, path, start=start))
        except (FileNotFoundError, NotADirectoryError):
            if Path(root).exists():  # else the process is gone
                return None
        except (OSError, ValueError):
            continue
        else:
            return Kind.FILE if stat.S_ISREG(mode) else Kind.FOLDER if stat.S_ISDIR(mode) else None
    return None


def _command_text(file: str, witnesses: Sequence[Witness]) -> FileText:
    """The program of ``python -c`` from its command line."""
    if file == "<string>":
        for witness in witnesses:
            words = (read_bytes(f"/proc/{witness.pid}/cmdline", 1 << 18) or b"").split(b"\0")
            if b"-c" in words[1:-1] and procfs.is_python(witness.pid):
                return file_text(words[words.index(b"-c", 1) + 1])
    raise NoSourceError("typed in or generated, there is no file")


def _from_archive(root: str, start: str, file: str) -> tuple[bytes, float]:
    """(bytes, 0.0) of a module inside a zip archive on the import path: /x/app.zip/pkg/mod.py. Raises OSError."""
    for parent in PurePosixPath(file).parents:
        try:
            descriptor = regular_file_below(root, str(parent), start=start)
        except OSError:
            continue
        with open(descriptor, "rb") as stream:
            status = os.fstat(stream.fileno())
            if status.st_size > _MAX_ARCHIVE:
                raise NoSourceError("in an archive that is too large to look into")
            try:
                with zipfile.ZipFile(stream) as archive:
                    name = str(PurePosixPath(file).relative_to(parent))
                    if archive.getinfo(name).file_size <= _MAX_FILE:
                        return archive.read(name), 0.0
            except (KeyError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError):
                pass
        break
    raise FileNotFoundError(errno.ENOENT, "no such module", file)


def decode(data: bytes) -> str:
    """The text of a source file. Raises NoSourceError for an encoding that is not known."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return data.decode(encoding, "replace").replace("\r\n", "\n").replace("\r", "\n")
    except (SyntaxError, LookupError) as error:
        raise NoSourceError("its encoding is not known") from error
