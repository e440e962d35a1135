"""The user's modules, whole, on a stack or not: what no thread is in may be what all of them wait for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from hangdoc.capture.read.imports import Imports
from hangdoc.capture.read.parsed_files import ParsedFiles
from hangdoc.capture.read.source_files import NoSourceError
from hangdoc.model.snapshot import MODULES, Module, Unavailable

MAX_LINES = 20_000
MAX_BYTES = 5_000_000
_MAX_MODULES = 2000
_MAX_MISFITS = 20
"""Files that are too long for what is left; behind so many, no further one is read. Judgement."""
_MOST_NAMED = 3
"""Files in one note."""


def whole_modules(
    files: ParsedFiles, users: Sequence[str], loaded: Sequence[str], is_library: Callable[[str], bool], until: float
) -> tuple[tuple[Module, ...], tuple[Unavailable, ...]]:
    """(modules, what was left out and why): the files ``users``, on stacks, and what they import of ``loaded``, the
    files of what the ranks have imported; then the others of ``loaded``; then what imports lead to on disk.

    No further file is read after ``until`` (monotonic). What is missing of ``users`` is not said again.
    """
    keeping = Keeping(files, until)
    imports = Imports(loaded, users, files.kind_of)
    queue: dict[str, None] = {}
    for more, on_disk in ((users, False), (loaded, True)):
        queue.update((file, None) for file in more if not is_library(file))
        waiting = list(queue)
        for file in waiting:  # which grows
            if not keeping.take(file):
                continue
            fresh = dict.fromkeys(each for each in imports.of(files.module(file), on_disk=on_disk) if each not in queue)
            waiting += [each for each in fresh if not is_library(each)]
            queue.update(fresh)
    return tuple(keeping.modules.values()), tuple(keeping.notes(users))


class Keeping:
    """Takes modules while there is room and time (``until``, monotonic)."""

    def __init__(self, files: ParsedFiles, until: float, kept: Iterable[Module] = ()) -> None:
        """``kept``: those that take up room already."""
        self.modules = {module.file: module for module in kept}
        self._files = files
        self._until = until
        self._lines = MAX_LINES - sum(_lines_of(module.text) for module in self.modules.values())
        self._bytes = MAX_BYTES - sum(_bytes_of(module.text) for module in self.modules.values())
        self._misfits: dict[str, None] = {}
        self._late: dict[str, None] = {}
        self._failed: dict[str, NoSourceError] = {}

    def take(self, file: str) -> bool:
        """True if the file is kept."""
        if file in self.modules:
            return True
        if file in self._misfits or file in self._failed:
            return False
        if time.monotonic() > self._until:
            self._late[file] = None
        elif len(self._misfits) >= _MAX_MISFITS or len(self.modules) >= _MAX_MODULES:
            self._misfits[file] = None
        else:
            try:
                self._read(file)
            except NoSourceError as error:
                self._failed[file] = error
        return file in self.modules

    def _read(self, file: str) -> None:
        """Keep the file if there is room. Raises NoSourceError."""
        text = None
        if not self._files.is_parsed(file):
            text = self._files.text(file)
            if not self._fits(text.text):  # to parse it may take long
                self._misfits[file] = None
                return
        found = self._files.module(file, text).whole()
        if self._fits(found.text):
            self._lines -= _lines_of(found.text)
            self._bytes -= _bytes_of(found.text)
            self.modules[file] = found
        else:
            self._misfits[file] = None

    def _fits(self, text: str) -> bool:
        return _lines_of(text) <= self._lines and len(text) <= self._bytes

    def notes(self, known: Sequence[str]) -> Iterator[Unavailable]:
        """What was left out, and why; nothing on why a file that is ``known`` cannot be read."""
        if self._misfits:
            most = f"{MAX_LINES:,} lines and {MAX_BYTES // 1_000_000} MB are the most"
            yield Unavailable(MODULES, f"{named([*self._misfits])}: left out, {most}")
        if late := [file for file in self._late if file not in self.modules]:
            yield Unavailable(MODULES, f"{named(late)}: not read in time")
        reasons: dict[tuple[str, str], list[str]] = {}
        for file, error in self._failed.items():
            if file not in known:
                reasons.setdefault((str(error), error.remedy), []).append(file)
        for (why, remedy), some in reasons.items():
            yield Unavailable(MODULES, f"{named(some)}: {why}", remedy)


def _lines_of(text: str) -> int:
    return text.count("\n") + 1


def _bytes_of(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def named(files: Sequence[str]) -> str:
    """'/a/x.py, /a/y.py, /a/z.py and 4 more'."""
    more = f" and {len(files) - _MOST_NAMED} more" if len(files) > _MOST_NAMED else ""
    return ", ".join(files[:_MOST_NAMED]) + more
