"""Source of the user functions on the job's stacks, read from the files as the job saw them.

String literals and comments are taken out unless asked for: code is what the diagnosis needs, texts may be
secrets. The line structure stays, so that line numbers of frames fit.
"""

from __future__ import annotations

import ast
import errno
import io
import keyword
import os
import re
import sys
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import TypeVar

from hangdoc.capture.read import procfs
from hangdoc.capture.safe.open_files import User, as_user, regular_file_below
from hangdoc.capture.safe.text import read_bytes
from hangdoc.model.frames import user_frames
from hangdoc.model.masking import mask_text
from hangdoc.model.process import Frame, Stack
from hangdoc.model.secret_names import Kind, kind_of_name
from hangdoc.model.snapshot import RankSnapshot, SourceText, Unavailable

_T = TypeVar("_T")
# Limits on the source code that a snapshot keeps, so that it can be mailed. Judgement.
_MAX_FILE = 4 << 20
_MAX_ARCHIVE = 32 << 20
_MAX_FILES = 100
_MAX_TEXTS = 300
_MAX_MODULE_LINES = 4000
_CLOCK_SLACK = 1.0
"""Seconds: start times are rounded down to ticks, and a launcher may write its script just before it runs it."""


@dataclass(frozen=True, slots=True)
class Witness:
    """A process as which files are found: with its root, its working folder and its user.

    ``started`` is Unix time: a file changed later is not the code that runs. Only what ``user`` may read is read; None
    is a process that was gone before it could be asked.
    """

    pid: int
    started: float
    user: User | None


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
    read: Callable[[str], str] | None = None,
) -> tuple[tuple[SourceText, ...], tuple[Unavailable, ...]]:
    """One ``SourceText`` per user function on ``stacks`` ('<module>': all of it), and what is missing.

    ``read`` finds the text of a file in another way than through the witnesses' eyes. It may be that of another
    version: then it counts only if every line on the stacks lies in the function that the stacks name.
    """
    lines: dict[str, set[tuple[str, int]]] = {}
    for stack in stacks:
        for frame in user_frames(stack, library_roots):
            lines.setdefault(frame.file, set()).add((_plain_name(frame), frame.line))
    texts: dict[tuple[str, str, int], SourceText] = {}
    missing: list[Unavailable] = []
    for file, wanted in list(lines.items())[:_MAX_FILES]:
        try:
            module = _Module(file, read(file) if read is not None else _read(file, witnesses), keep_strings)
            if read is not None and not all(module.fits(function, line) for function, line in wanted):
                raise NoSourceError("the file that is here is of another version")
        except NoSourceError as error:
            missing.append(Unavailable("source", f"{file}: {error}"))
            continue
        for function, line in sorted(wanted):
            text = module.around(function, line)
            if text is None:
                missing.append(Unavailable("source", f"{file}:{line}: no such line in the file any more"))
            elif len(texts) < _MAX_TEXTS:
                texts.setdefault((file, text.function, text.first_line), text)
    return tuple(texts.values()), tuple(dict.fromkeys(missing))


class NoSourceError(Exception):
    """Why a file's source cannot be had, in a few words."""


class _Module:
    """The text of one file, cut into functions."""

    def __init__(self, file: str, text: str, keep_strings: bool) -> None:
        self.file = file
        try:
            tree = ast.parse(text)
            shown = scrub(text, keep_strings=keep_strings)
        except (SyntaxError, ValueError, RecursionError, tokenize.TokenError) as error:
            version = f"{sys.version_info.major}.{sys.version_info.minor}"
            raise NoSourceError(f"Python {version}, which hangdoc runs on, cannot parse it") from error
        self.lines = shown.split("\n")
        self.functions = sorted(_functions(tree))
        self.classes = [
            (_first_line(node), node.end_lineno or node.lineno, node.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
        ]
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

    def fits(self, function: str, line: int) -> bool:
        """May a frame of that function stand at that line? Of code without a name, any line of the file will do."""
        if function.startswith("<"):
            return line <= len(self.lines)
        return any(start <= line <= end and name == function for start, end, name in (*self.functions, *self.classes))

    def _text(self, start: int, end: int) -> str:
        return "\n".join(self.lines[start - 1 : end])


def _functions(tree: ast.Module) -> Iterator[tuple[int, int, str]]:
    """(first line, last line, name) of each function, its decorators included."""
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
        if witness is not None and changed > witness.started + _CLOCK_SLACK:
            raise NoSourceError("edited since the job started")
        return decode(data)
    raise NoSourceError("there is no such file, or the job's user may not read it")


def _places(witnesses: Sequence[Witness]) -> Iterator[tuple[str, str, Witness | None]]:
    """(root, working folder, witness) of each place to look for a file: each witness's own, then ours."""
    for witness in witnesses:
        yield f"/proc/{witness.pid}/root", f"/proc/{witness.pid}/cwd", witness
    yield "/", "", min(witnesses, key=lambda witness: witness.started, default=None)


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


def _command_text(file: str, witnesses: Sequence[Witness]) -> str:
    """The program of ``python -c`` from its command line."""
    if file == "<string>":
        for witness in witnesses:
            words = (read_bytes(f"/proc/{witness.pid}/cmdline", 1 << 18) or b"").split(b"\0")
            if b"-c" in words[1:-1] and procfs.is_python(witness.pid):
                return decode(words[words.index(b"-c", 1) + 1])
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


# Common words of this field, which are no secrets: `os.environ["RANK"] == "0"` is useless without them.
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
_LONGEST_COUNT = 6
"""Characters of a number that is shown beside a name of secrets: a longer one may be a key. Judgement."""
_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")


def scrub(text: str, *, keep_strings: bool = False) -> str:
    """``text`` with the content of every string literal replaced by ``…`` and without comments, lines kept.

    Names that every job uses (RANK, __main__, gloo) and short numbers stay, but not where they are given to a name
    that speaks of a secret. ``keep_strings``: only literals and comments that may hold a secret are changed. Raises
    tokenize.TokenError or SyntaxError for a text that is no Python.
    """
    # One branch for each kind of token; nested strings of an f-string share the state.
    lines = [f"{line}\n" for line in text.split("\n")]
    replacements: list[tuple[tuple[int, int], tuple[int, int], str]] = []
    names = _Names()
    depth, opened = 0, None
    for token in tokenize.generate_tokens(iter([*lines, ""]).__next__):
        kind = tokenize.tok_name[token.type]
        if kind in ("FSTRING_START", "TSTRING_START"):
            opened = token if depth == 0 else opened
            depth += 1
        elif kind in ("FSTRING_END", "TSTRING_END"):
            depth -= 1
            if depth == 0 and opened is not None:
                whole = _between(lines, opened.start, token.end)
                if not keep_strings or names.speak_of_a_secret or mask_text(whole) != whole:
                    hidden = _hidden(opened.string + "\n" * (token.end[0] - opened.start[0]) + token.string)
                    replacements.append((opened.start, token.end, hidden))
        elif depth:
            continue
        elif kind == "STRING":
            if names.speak_of_a_secret:
                replacements.append((token.start, token.end, _hidden(token.string, always=True)))
            elif not keep_strings or mask_text(token.string) != token.string:
                replacements.append((token.start, token.end, _hidden(token.string)))
            names.add_text(token.string)
        elif kind == "COMMENT":
            replacements.append((token.start, token.end, mask_text(token.string) if keep_strings else ""))
        elif kind == "NUMBER":
            if names.speak_of_a_secret and len(token.string) > _LONGEST_COUNT:
                replacements.append((token.start, token.end, "..."))
        else:
            names.add(kind, token.string)
    return _replace(lines, replacements)


class _Names:
    """What is being given a value, while the tokens of a program go by."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._given = False
        self._depth = 0

    @property
    def speak_of_a_secret(self) -> bool:
        """True if a password or another secret is set to, or compared with, the next literal."""
        return self._given and any(kind_of_name(name) in (Kind.SURE, Kind.OWNED, Kind.LONE) for name in self._names)

    def add(self, kind: str, text: str) -> None:
        """A token that is no literal."""
        if text in _OPENING or text in _CLOSING:
            self._depth = max(0, self._depth + (1 if text in _OPENING else -1))
        # `user, password = "me", "x"` gives all of them something.
        if kind == "NEWLINE" or text in ("(", "{", ";") or (text == "," and self._depth) or keyword.iskeyword(text):
            self._names, self._given = [], False
        elif kind == "NAME":
            self._names.append(text)
        elif text in ("=", ":", "==", "!=", ":="):
            self._given = True

    def add_text(self, literal: str) -> None:
        """A literal, which may be a key: ``{"password": …}``."""
        self._names.append(literal)


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    if start[0] == end[0]:
        return lines[start[0] - 1][start[1] : end[1]]
    return "".join([lines[start[0] - 1][start[1] :], *lines[start[0] : end[0] - 1], lines[end[0] - 1][: end[1]]])


def _hidden(literal: str, *, always: bool = False) -> str:
    """The literal with its content gone and its prefix, quotes and number of lines kept."""
    prefix = literal[: len(literal) - len(literal.lstrip("rRbBuUfFtT"))]
    body = literal[len(prefix) :]
    quotes = body[:3] if body.startswith(('"""', "'''")) else body[:1]
    content = body[len(quotes) : len(body) - len(quotes)]
    if not content or (not always and (content in _HARMLESS or _SHORT_NUMBER.fullmatch(content))):
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
