"""The files of a job, each read and parsed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hangdoc.capture.read.probe_answers import TypedIn
from hangdoc.capture.read.source_files import FileText, Kind, NoSourceError, Witness, file_text, kind_of, read_source
from hangdoc.capture.read.source_pieces import SourcePieces
from hangdoc.model.marks import Marks


class ParsedFiles:
    """Reads through the witnesses' eyes, or in the caller's own way."""

    def __init__(
        self,
        witnesses: Sequence[Witness],
        *,
        read: Callable[[str], FileText] | None = None,
        keep_strings: bool = False,
        marks: Marks | None = None,
    ) -> None:
        """``read`` finds the text of a file in another way than through the witnesses' eyes. ``marks``: for whole
        modules."""
        self._witnesses = witnesses
        self._read = read
        self._keep_strings = keep_strings
        self._marks = marks
        self._typed_in: Mapping[str, TypedIn] = {}
        self._modules: dict[str, SourcePieces | NoSourceError] = {}
        self._kinds: dict[str, Kind | None] = {}

    def learn(self, witnesses: Sequence[Witness], typed_in: Mapping[str, TypedIn]) -> None:
        """Read with witnesses who know more, and with code that no file holds (by the name that stacks give it): what
        could not be read before is tried again."""
        self._witnesses, self._typed_in = witnesses, typed_in
        # A thread that reads ahead may be about to add one.
        known = list(self._modules.items())
        self._modules = {file: found for file, found in known if not isinstance(found, NoSourceError)}

    @property
    def elsewhere(self) -> bool:
        """True if the files are the caller's, which may be of another version than the job's."""
        return self._read is not None

    def module(self, file: str, text: FileText | None = None) -> SourcePieces:
        """The file in pieces; ``text``: where it has been read already. Raises NoSourceError."""
        if file not in self._modules:
            try:
                cell = self._typed_in[file].cell if file in self._typed_in else 0
                found = text or self.text(file)
                self._modules[file] = SourcePieces(file, found, self._keep_strings, cell, self._marks)
            except NoSourceError as error:
                # Not the error itself, whose traceback would keep all files in memory.
                self._modules[file] = NoSourceError(str(error), error.remedy)
        known = self._modules[file]
        if isinstance(known, NoSourceError):
            raise NoSourceError(str(known), known.remedy)
        return known

    def text(self, file: str) -> FileText:
        """What the file holds. Raises NoSourceError."""
        if file in self._typed_in:
            return file_text(self._typed_in[file].text.encode("utf-8", "backslashreplace"))
        return self._read(file) if self._read is not None else read_source(file, self._witnesses)

    def is_parsed(self, file: str) -> bool:
        """True if ``module`` has been asked for it."""
        return file in self._modules

    def kind_of(self, path: str) -> Kind | None:
        """What lies at that path, for the job's processes; looked at once."""
        if path not in self._kinds:
            self._kinds[path] = kind_of(path, self._witnesses)
        return self._kinds[path]
