"""Source of the user functions on the job's stacks, read from the files as the job saw them.

String literals and comments are taken out unless asked for: code is what the diagnosis needs, texts may be
secrets. The line structure stays, so that line numbers of frames fit.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from hangdoc.capture.read.parsed_files import ParsedFiles
from hangdoc.capture.read.source_files import FileText, NoSourceError, Witness
from hangdoc.capture.read.source_pieces import MAX_MODULE_LINES, SourcePieces
from hangdoc.capture.read.whole_modules import whole_modules
from hangdoc.capture.read.written import Output, texts_of, written_by
from hangdoc.model.asked import answers_to, asked_by, may_throw, raised_in, tells_of_the_past, tests_in
from hangdoc.model.frames import is_library_file, libraries_between, user_frames
from hangdoc.model.process import Frame, Process, Stack
from hangdoc.model.ran import RanCode
from hangdoc.model.snapshot import Module, RankSnapshot, SourceText, Unavailable, Written
from hangdoc.model.stop_flags import (
    flags,
    flags_in,
    functions,
    leaving_tests,
    raising_methods,
    set_at,
    setters,
    tests_around,
)

_MAX_FILES = 100
_MAX_TEXTS = 300
_LIBRARY_SECONDS = 2.0
"""Where the machine is slow, some of the libraries' are left out. Judgement."""
_MAX_LIBRARY_FILES = 20
_MAX_LIBRARY_TEXTS = 60
_MAX_SETTERS = 40
_MAX_ANSWERING = 80
_MAX_WRITING = 60
_MAX_RUN = 100
_MAX_RUN_FILES = 30
_ASKED_DEEP = 2
"""Functions that ask each other, followed this far. Judgement."""
_MAX_TRIED = 400
"""Places where an imported file may lie; most of them are none."""


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
        yield from (each.stack for each in rank.exit.raised)
    yield rank.first_store


def stacks_of_launcher(launcher: Process | None) -> Iterator[Stack]:
    """What a program of the user's own that starts the ranks does now; nothing of torchrun and its like."""
    main = launcher.last.main if launcher is not None and launcher.last is not None else None
    if main is not None:
        yield tuple(frame for frame in main.frames if frame.file.endswith(".py"))


def collect(
    stacks: Iterable[Stack],
    witnesses: Sequence[Witness],
    *,
    library_roots: tuple[str, ...] = (),
    keep_strings: bool = False,
    read: Callable[[str], FileText] | None = None,
) -> tuple[tuple[SourceText, ...], tuple[Unavailable, ...]]:
    """One ``SourceText`` per user function on ``stacks`` ('<module>': all of it), and what is missing.

    Also the functions of installed libraries through which the user's code is called or calls, without a note where
    they are missing, and those of the user that set what such a library's loop tests. ``read`` finds the text of a file
    in another way than through the witnesses' eyes. It may be that of another version: then it counts only if every
    line on the stacks lies in the function that the stacks name.
    """
    files = ParsedFiles(witnesses, read=read, keep_strings=keep_strings)
    found = Sources(stacks, files, library_roots)
    texts, missing = found.of_users()
    kept = {(text.file, text.function, text.first_line): text for text in (*texts, *found.of_libraries())}
    return tuple(kept.values()), missing


class Sources:
    """As ``collect``, in two steps: what is the user's must not be lost with large files of libraries."""

    def __init__(self, stacks: Iterable[Stack], files: ParsedFiles, library_roots: tuple[str, ...] = ()) -> None:
        self._lines: _Lines = {}
        self._below: _Lines = {}
        often: Counter[str] = Counter()
        for stack in stacks:
            for frame in user_frames(stack, library_roots):
                self._lines.setdefault(frame.file, set()).add((_plain_name(frame), frame.line))
            for frame in libraries_between(stack, library_roots):
                self._below.setdefault(frame.file, set()).add((_plain_name(frame), frame.line))
                often[frame.file] += 1
        self._often = [file for file, _ in often.most_common(_MAX_LIBRARY_FILES)]  # what loops is on most stacks
        self._roots = library_roots
        self._parsed = files
        self._files = _Files(files)
        self._texts: list[SourceText] = []

    def of_users(self) -> tuple[tuple[SourceText, ...], tuple[Unavailable, ...]]:
        """The user's functions on the stacks, and what is missing of them. To be called first."""
        self._texts, missing = self._files.texts(self._lines, _MAX_FILES, _MAX_TEXTS)
        return tuple(self._texts), tuple(dict.fromkeys(missing))

    def of_whole_files(self) -> tuple[SourceText, ...]:
        """The user's files on the stacks, the small ones: what would end a wait need not be on a stack, and a process
        that was spawned, or whose program is over, has no frame of its module."""
        return tuple(self._files.whole(self._texts))

    def of_modules(self, loaded: Iterable[str], until: float) -> tuple[tuple[Module, ...], tuple[Unavailable, ...]]:
        """The user's modules, whole, and what was left out: first those on the stacks and what these import, then what
        else the ranks have ``loaded`` (files), then what imports lead to on disk. Nothing more is read after ``until``
        (monotonic)."""
        users = list(self._lines)
        relative = tuple(f"/{file}" for file in users if not file.startswith(("/", "<")))
        more = [file for file in dict.fromkeys(loaded) if file.endswith(".py") and not file.endswith(relative)]
        return whole_modules(self._parsed, users, more, lambda file: is_library_file(file, self._roots), until)

    def like(self, pieces: Iterable[SourceText], until: float) -> Iterator[SourceText]:
        """The same pieces of the files that lie here, as far as they can be read by ``until`` (monotonic)."""
        for piece in itertools.islice(pieces, _MAX_TEXTS):
            if time.monotonic() > until:
                return
            with contextlib.suppress(NoSourceError):
                text = self._files.module(piece.file).around(piece.function, piece.first_line)
                if text is not None and (text.function, text.first_line) == (piece.function, piece.first_line):
                    yield text

    def of_code(self, codes: Iterable[RanCode]) -> tuple[SourceText, ...]:
        """The user's functions of these, which need be on no stack."""
        return tuple(self._files.of_code(codes))

    def written(
        self, outputs: Sequence[Output], rank_of: Mapping[int, int], until: float
    ) -> tuple[tuple[Written, ...], tuple[SourceText, ...]]:
        """The lines of the ranks' output that the user's statements wrote, and the functions of these statements. See
        ``written.written_by``."""
        modules = list(self._files.with_imported(list(self._lines), until))
        found = written_by(
            outputs, (text for each in modules for text in texts_of(each.file, each.tree)), until, rank_of
        )
        by_file = {module.file: module for module in modules}
        places = dict.fromkeys(place for line in found for place in line.places)
        around = (by_file[file].around("", line) for file, line in places)
        return found, tuple({(t.file, t.first_line): t for t in around if t is not None}.values())[:_MAX_WRITING]

    def of_libraries(self) -> tuple[SourceText, ...]:
        """The libraries' functions, and those that set what their loops test: as many as can be had in two seconds."""
        until = time.monotonic() + _LIBRARY_SECONDS
        below = {file: self._below[file] for file in self._often}
        libraries, _ = self._files.texts(below, _MAX_LIBRARY_FILES, _MAX_LIBRARY_TEXTS, until)
        answering = self._files.answering(self._texts, list(self._lines), until)
        return (*libraries, *self._files.setters(list(self._lines), libraries, below, until), *answering)


_Lines = dict[str, set[tuple[str, int]]]
"""File → (function, line) of the frames there."""


class _Files:
    """Picks what is kept of a job's files in pieces."""

    def __init__(self, parsed: ParsedFiles) -> None:
        self._parsed = parsed
        self.module = parsed.module

    def texts(
        self, lines: _Lines, most_files: int, most: int, until: float = math.inf
    ) -> tuple[list[SourceText], list[Unavailable]]:
        """The functions around the lines, and what is missing; no further file is read after ``until`` (monotonic)."""
        texts: dict[tuple[str, str, int], SourceText] = {}
        missing: list[Unavailable] = []
        for file, wanted in list(lines.items())[:most_files]:
            if time.monotonic() > until:
                break
            try:
                module = self.module(file)
                if self._parsed.elsewhere and not all(module.fits(function, line) for function, line in wanted):
                    raise NoSourceError("the file that is here is of another version")
            except NoSourceError as error:
                missing.append(Unavailable("source", f"{file}: {error}", error.remedy))
                continue
            for function, line in sorted(wanted):
                text = module.around(function, line)
                if text is None:
                    missing.append(Unavailable("source", f"{file}:{line}: no such line in the file any more"))
                elif len(texts) < most:
                    texts.setdefault((file, text.function, text.first_line), text)
        return list(texts.values()), missing

    def whole(self, texts: Sequence[SourceText]) -> list[SourceText]:
        """The files of these functions of which there is no more, as far as they have few lines together."""
        left = MAX_MODULE_LINES - sum(text.text.count("\n") + 1 for text in texts if text.function == "<module>")
        found = []
        for file in dict.fromkeys(text.file for text in texts):
            known = any(text.function == "<module>" for text in texts if text.file == file)
            module = None if known else self.module(file)
            lines = len(module.lines) if module is not None else 0
            if module is not None and lines <= left and (text := module.around("<module>", 1)) is not None:
                left -= lines
                found.append(text)
        return found

    def of_code(self, codes: Iterable[RanCode]) -> list[SourceText]:
        """The functions of these, without a note where one is missing."""
        found: dict[tuple[str, int], SourceText] = {}
        files: set[str] = set()
        for code in codes:
            files.add(code.file)
            if len(found) >= _MAX_RUN or len(files) > _MAX_RUN_FILES:
                break
            with contextlib.suppress(NoSourceError):
                text = self.module(code.file).around(code.function, code.first_line)
                if text is not None and text.function != "<module>":
                    found.setdefault((text.file, text.first_line), text)
        return list(found.values())

    def setters(
        self, users: Sequence[str], libraries: Sequence[SourceText], lines: _Lines, until: float
    ) -> list[SourceText]:
        """The functions that set what the libraries' loops test: the libraries' own, and the user's that call them.
        Of what the conditions around ``lines`` test, the user's alone."""
        names: set[str] = set()
        methods: set[str] = set()
        texts: list[SourceText] = []
        for file in dict.fromkeys(text.file for text in libraries):
            module = self.module(file)
            mine = [module.tree_of(text) for text in libraries if text.file == file]
            raising = raising_methods(module.tree)
            flagged = flags((test for tree in mine for test in leaving_tests(tree, raising)), module.tree)
            setting = setters(module.tree, flagged)
            asked = tests_around(module.tree, {line for _, line in lines.get(file, ())})
            names |= flagged.union(*map(flags_in, asked))
            methods |= setting.keys()
            # A loop that tests `self.done` is told by what `done` returns.
            texts += [module.text_of(node) for node in functions(module.tree) if node.name in {*setting, *flagged}]
        if not names:
            return []
        for module in self.with_imported(users, until):
            texts += [
                text
                for line, _ in set_at(module.tree, names, methods)
                if (text := module.around("", line)) is not None and text.function != "<module>"
            ]
        return texts[:_MAX_SETTERS]

    def answering(self, texts: Sequence[SourceText], users: Sequence[str], until: float) -> list[SourceText]:
        """The user's functions that the conditions in ``texts`` ask, and what these ask; those that raise what the
        handlers in ``texts`` catch; then those that tell of what no stack shows any more."""
        every = [(each, node) for each in self.with_imported(users, until) for node in functions(each.tree)]
        found: dict[tuple[str, int], SourceText] = {}
        trees: list[ast.AST] = [self.module(text.file).tree_of(text) for text in texts]
        caught: set[str] = set()
        tried: set[str] = set()
        for tree in trees:
            own, called_there = may_throw(tree)
            caught |= own
            tried |= called_there
        for _ in range(_ASKED_DEEP):
            asked: dict[str, set[bool]] = {}
            for name, called in (pair for tree in trees for test in tests_in(tree) for pair in asked_by(test).items()):
                asked.setdefault(name, set()).add(called)
            trees = []
            for module, node in every:
                if any(answers_to(node, called=called) for called in asked.get(node.name, ())):
                    text = module.text_of(node)
                    trees += [node] if (text.file, text.first_line) not in found else []
                    found[text.file, text.first_line] = text
        raising = ((m, n) for m, n in every if (r := raised_in(n)) and (r & caught or n.name in tried))
        telling = ((m, n) for m, n in every if tells_of_the_past(n))
        for module, node in (*raising, *telling):
            if len(found) < _MAX_ANSWERING:
                text = module.text_of(node)
                found.setdefault((text.file, text.first_line), text)
        return list(found.values())[:_MAX_ANSWERING]

    def with_imported(self, users: Sequence[str], until: float) -> Iterator[SourcePieces]:
        """The user's files on the stacks and those beside them that they import: a callback need not be on a stack."""
        queue = dict.fromkeys(users)
        tried, found = 0, 0
        while tried < min(len(queue), _MAX_TRIED) and found < _MAX_FILES and time.monotonic() < until:
            file = list(queue)[tried]
            tried += 1
            with contextlib.suppress(NoSourceError):
                module = self.module(file)
                found += 1
                yield module
                queue.update(dict.fromkeys(module.imported()))


def _plain_name(frame: Frame) -> str:
    """py-spy gives qualified names, the flight recorder plain ones."""
    return frame.function.rpartition(".")[2]
