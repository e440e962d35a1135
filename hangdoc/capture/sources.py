"""Source of the user functions on the job's stacks, read from the files as the job saw them.

String literals and comments are taken out unless asked for: code is what the diagnosis needs, texts may be
secrets. The line structure stays, so that line numbers of frames fit.
"""

from __future__ import annotations

import ast
import io
import os
import re
import stat
import sys
import tokenize
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from hangdoc.capture import procfs
from hangdoc.capture.text import read_bytes
from hangdoc.model.frames import user_frames
from hangdoc.model.process import Frame, Stack
from hangdoc.model.snapshot import RankSnapshot, SourceText, Unavailable

_MAX_FILE = 4 << 20
_MAX_FILES = 100
_MAX_TEXTS = 300
_MAX_MODULE_LINES = 4000
_CLOCK_SLACK = 1.0
"""Seconds: start times are rounded down to ticks, and a launcher may write its script just before it runs it."""


@dataclass(frozen=True, slots=True)
class Witness:
    """A process through whose eyes files are found.

    ``started`` is Unix time: a file changed later is not the code that runs.
    """

    pid: int
    started: float


def stacks_of(rank: RankSnapshot) -> Iterable[Stack]:
    """Every stack of a rank: its threads' and its children's now, its history's, its end's."""
    pending = [rank.process] if rank.process is not None else []
    while pending:
        process = pending.pop()
        pending.extend(process.children)
        yield from (thread.frames for look in process.looks for thread in look.threads)
    if rank.journal is not None:
        yield from rank.journal.stacks
    if rank.exit is not None:
        yield rank.exit.stack
    yield rank.first_store


def collect(
    stacks: Iterable[Stack],
    witnesses: Sequence[Witness],
    *,
    library_roots: tuple[str, ...] = (),
    keep_strings: bool = False,
) -> tuple[tuple[SourceText, ...], tuple[Unavailable, ...]]:
    """One ``SourceText`` per user function on ``stacks`` ('<module>': all of it), and what is missing."""
    lines: dict[str, set[tuple[str, int]]] = {}
    for stack in stacks:
        for frame in user_frames(stack, library_roots):
            lines.setdefault(frame.file, set()).add((_plain_name(frame), frame.line))
    texts: dict[tuple[str, str, int], SourceText] = {}
    missing: list[Unavailable] = []
    for file, wanted in list(lines.items())[:_MAX_FILES]:
        try:
            module = _Module(file, _read(file, witnesses), keep_strings)
        except _NoSourceError as error:
            missing.append(Unavailable("source", f"{file}: {error}"))
            continue
        for function, line in sorted(wanted):
            text = module.around(function, line)
            if text is None:
                missing.append(Unavailable("source", f"{file}:{line}: no such line in the file any more"))
            elif len(texts) < _MAX_TEXTS:
                texts.setdefault((file, text.function, text.first_line), text)
    return tuple(texts.values()), tuple(dict.fromkeys(missing))


class _NoSourceError(Exception):
    """Why a file's source cannot be had, in a few words."""


class _Module:
    """The text of one file, cut into functions."""

    def __init__(self, file: str, text: str, keep_strings: bool) -> None:
        self.file = file
        try:
            tree = ast.parse(text)
            shown = text if keep_strings else scrub(text)
        except (SyntaxError, ValueError, RecursionError, tokenize.TokenError) as error:
            version = f"{sys.version_info.major}.{sys.version_info.minor}"
            raise _NoSourceError(f"Python {version}, which hangdoc runs on, cannot parse it") from error
        self.lines = shown.split("\n")
        self.functions = sorted(_functions(tree))
        self.statements = [(_first_line(node), node.end_lineno or node.lineno) for node in tree.body]

    def around(self, function: str, line: int) -> SourceText | None:
        """The innermost function that holds ``line``, or the module; None if the file has no such line."""
        if not 1 <= line <= len(self.lines):
            return None
        if function != "<module>":
            holding = [(end - start, start, end, name) for start, end, name in self.functions if start <= line <= end]
            if holding:
                _, start, end, name = min(holding)
                return SourceText(self.file, name, start, self._text(start, end))
        if len(self.lines) <= _MAX_MODULE_LINES:
            return SourceText(self.file, "<module>", 1, self._text(1, len(self.lines)))
        for start, end in self.statements:
            if start <= line <= end:
                return SourceText(self.file, "<module>", start, self._text(start, min(end, start + _MAX_MODULE_LINES)))
        return None

    def _text(self, start: int, end: int) -> str:
        return "\n".join(self.lines[start - 1 : end])


def _functions(tree: ast.Module) -> Iterator[tuple[int, int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield _first_line(node), node.end_lineno or node.lineno, node.name


def _first_line(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(int(decorator.lineno) for decorator in decorators)])


def _plain_name(frame: Frame) -> str:
    """py-spy gives qualified names, the flight recorder plain ones."""
    return frame.function.rpartition(".")[2]


def _read(file: str, witnesses: Sequence[Witness]) -> str:
    """The text of ``file`` as the first witness that can see it does. Raises _NoSourceError."""
    if file.startswith("<"):
        return _command_text(file, witnesses)
    for path, witness in _candidates(file, witnesses):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except NotADirectoryError:
            if (data := _from_archive(path)) is not None:
                return _decode(data)
            continue
        except (OSError, ValueError):
            continue
        with open(fd, "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_FILE:
                raise _NoSourceError("not a regular file, or larger than source is")
            if witness is not None and status.st_mtime > witness.started + _CLOCK_SLACK:
                raise _NoSourceError("edited since the job started")
            return _decode(stream.read(_MAX_FILE))
    raise _NoSourceError("the file cannot be found or read")


def _candidates(file: str, witnesses: Sequence[Witness]) -> Iterator[tuple[str, Witness | None]]:
    """Where the file may be: as each witness sees it, then as the path reads here."""
    for witness in witnesses:
        if file.startswith("/"):
            yield f"/proc/{witness.pid}/root{file}", witness
        else:
            yield f"/proc/{witness.pid}/cwd/{file}", witness
    if file.startswith("/"):
        oldest = min(witnesses, key=lambda witness: witness.started, default=None)
        yield file, oldest


def _command_text(file: str, witnesses: Sequence[Witness]) -> str:
    """The program of ``python -c`` from its command line."""
    if file == "<string>":
        for witness in witnesses:
            words = (read_bytes(f"/proc/{witness.pid}/cmdline", 1 << 18) or b"").split(b"\0")
            if b"-c" in words[1:-1] and procfs.is_python(witness.pid):
                return _decode(words[words.index(b"-c", 1) + 1])
    raise _NoSourceError("typed in or generated, there is no file")


def _from_archive(path: str) -> bytes | None:
    """A module inside a zip archive on the import path: /x/app.zip/pkg/mod.py."""
    for parent in PurePosixPath(path).parents:
        if os.path.isfile(parent):  # noqa: PTH113 - the path is pure on purpose
            try:
                with zipfile.ZipFile(parent) as archive:
                    name = str(PurePosixPath(path).relative_to(parent))
                    if archive.getinfo(name).file_size <= _MAX_FILE:
                        return archive.read(name)
            except (OSError, KeyError, ValueError, zipfile.BadZipFile, NotImplementedError, RuntimeError):
                return None
    return None


def _decode(data: bytes) -> str:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return data.decode(encoding, "replace").replace("\r\n", "\n").replace("\r", "\n")
    except (SyntaxError, LookupError) as error:
        raise _NoSourceError("its encoding is not known") from error


# Texts that are names of the field and no secrets: without them `os.environ["RANK"] == "0"` says nothing.
_HARMLESS = procfs.ENVIRONMENT_NAMES | {
    "__main__",
    "gloo",
    "nccl",
    "mpi",
    "cpu",
    "cuda",
    "train",
    "eval",
    "val",
}
_SHORT_NUMBER = re.compile(r"\d{1,3}")


def scrub(text: str) -> str:
    """``text`` with the content of every string literal replaced by ``…`` and without comments, lines kept.

    Names that every job uses (RANK, __main__, gloo) and short numbers stay. Raises tokenize.TokenError or
    SyntaxError for a text that is no Python.
    """
    lines = [f"{line}\n" for line in text.split("\n")]
    replacements: list[tuple[tuple[int, int], tuple[int, int], str]] = []
    depth, opened = 0, None
    for token in tokenize.generate_tokens(iter([*lines, ""]).__next__):
        kind = tokenize.tok_name[token.type]
        if kind in ("FSTRING_START", "TSTRING_START"):
            opened = token if depth == 0 else opened
            depth += 1
        elif kind in ("FSTRING_END", "TSTRING_END"):
            depth -= 1
            if depth == 0 and opened is not None:
                hidden = _hidden(opened.string + "\n" * (token.end[0] - opened.start[0]) + token.string)
                replacements.append((opened.start, token.end, hidden))
        elif depth == 0 and kind == "STRING":
            replacements.append((token.start, token.end, _hidden(token.string)))
        elif depth == 0 and kind == "COMMENT":
            replacements.append((token.start, token.end, ""))
    return _replace(lines, replacements)


def _hidden(literal: str) -> str:
    """The literal with its content gone and its prefix, quotes and number of lines kept."""
    prefix = literal[: len(literal) - len(literal.lstrip("rRbBuUfFtT"))]
    body = literal[len(prefix) :]
    quotes = body[:3] if body.startswith(('"""', "'''")) else body[:1]
    content = body[len(quotes) : len(body) - len(quotes)]
    if not content or content in _HARMLESS or _SHORT_NUMBER.fullmatch(content):
        return literal
    newlines = content.count("\n")
    if newlines and len(quotes) == 1:
        quotes *= 3  # a literal that was continued with backslashes
    return f"{prefix}{quotes}{'...' if 'b' in prefix.lower() else '…'}" + "\n" * newlines + quotes


def _replace(lines: list[str], replacements: list[tuple[tuple[int, int], tuple[int, int], str]]) -> str:
    parts: list[str] = []
    row, column = 1, 0
    for (start_row, start), (end_row, end), new in replacements:
        while row < start_row:
            parts.append(lines[row - 1][column:])
            row, column = row + 1, 0
        parts.append(lines[row - 1][column:start])
        parts.append(new)
        row, column = end_row, end
    parts.append(lines[row - 1][column:])
    parts.extend(lines[row:])
    return "".join(parts)[:-1]
