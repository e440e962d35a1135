"""All captured sources of a job, as one program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from hangdoc.diagnosis.program.functions import Function
from hangdoc.diagnosis.program.index import Index
from hangdoc.diagnosis.program.items import Predicate, Span
from hangdoc.diagnosis.program.lookup import Lookup
from hangdoc.diagnosis.program.outline import Outline, outline
from hangdoc.diagnosis.program.pieces import Piece, parsed
from hangdoc.diagnosis.program.places import Places
from hangdoc.diagnosis.program.slicing import Ran, Slice, sliced
from hangdoc.model.snapshot import JobSnapshot, Module, SourceText, Unavailable


class Program:
    """What the code can do. Files are parsed and functions read when they are asked for; both are kept by their text,
    so that two programs share what they have in common.

    Example: `Program.of(job).slice_back("train.py", 41)` → what may have decided that line 41 runs.
    """

    def __init__(self, sources: Iterable[SourceText] = (), modules: Iterable[Module] = ()) -> None:
        """``sources``: fragments. Of a file of which there is the whole module they are not looked at."""
        self._texts: dict[str, list[tuple[int, str]]] = {}
        for each in sources:
            self._texts.setdefault(each.file, []).append((each.first_line, each.text))
        self._read: dict[str, list[Outline]] = {}
        for module in modules:
            if module.text:
                self._texts[module.file] = [(1, module.text)]

    @classmethod
    def of(cls, job: JobSnapshot) -> Program:
        """That of a snapshot."""
        return cls(job.sources, job.modules)

    @property
    def files(self) -> tuple[str, ...]:
        """The files of which any source was captured."""
        return tuple(self._texts)

    def unread(self) -> tuple[Unavailable, ...]:
        """The pieces that say nothing, and why: another Python's syntax, too long, nested too deeply."""
        found = (parsed(file, *text) for file, texts in self._texts.items() for text in texts)
        return tuple(each for each in found if isinstance(each, Unavailable))

    def function(self, file: str, line: int) -> Function | None:
        """The innermost function, class or module body around a line; None where its source was not captured."""
        return next((Function(found) for each in self._outlines(file) if (found := each.at(line))), None)

    def functions(self, file: str) -> list[Function]:
        """All functions and bodies of a file, as far as they were captured; each after what it stands in."""
        return [Function(body) for each in self._outlines(file) for body in each.bodies]

    def predicates(self, file: str | None = None) -> list[Predicate]:
        """All predicates of a file, or of all files, in the order of the text."""
        files = self.files if file is None else (file,)
        return [each for file in files for function in self.functions(file) for each in function.predicates]

    def leaves(self, file: str, line: int) -> bool:
        """True if whoever runs the line then leaves the round, the loop or the function, which not all do there.

        Example: both lines of `if not rows: ⏎ self.skipped += 1 ⏎ continue`, but the test.
        """
        return any(line in each.leaving for each in self._outlines(file))

    def led_to(self, file: str, line: int) -> dict[Predicate, str]:
        """All that the line is control-dependent on in its function, directly or not: predicate → outcome."""
        function = self.function(file, line)
        return function.led_to(line) if function is not None else {}

    def slice_back(
        self,
        file: str,
        line: int,
        *,
        expression: Span | None = None,
        stack: Sequence[tuple[str, int]] = (),
        ran: Ran | None = None,
    ) -> Slice:
        """What may have decided that the line runs, and with which values: the nearest first, found as asked for.

        ``expression``: a part of the statement that is meant, which also says which values. ``stack``: (file, line)
        of the frames, the innermost first, so that the caller of a frame is the next; without it all calls of a
        function's name are its callers. ``ran(file, line)``: False for a line that is known not to have run.
        """
        return sliced(self._lookup, file, line, expression, stack, ran)

    @cached_property
    def places(self) -> Places:
        """Statements by what stands in them."""
        return Places(self._lookup, self.files)

    @cached_property
    def _lookup(self) -> Lookup:
        return Lookup(Index([each for file in self.files for each in self._outlines(file)]))

    def _outlines(self, file: str) -> list[Outline]:
        known = self._read.get(file)
        if known is None:
            pieces = (parsed(file, *text) for text in self._texts.get(file, ()))
            found = [each for each in pieces if isinstance(each, Piece)]
            outermost = [each for each in found if not any(_lies_in(each, other) for other in found)]
            known = self._read[file] = [outline(each) for each in outermost]
        return known


def _lies_in(piece: Piece, other: Piece) -> bool:
    """True if the other one holds all lines of the piece, and more."""
    ends = [each.first_line + len(each.lines) for each in (piece, other)]
    larger = len(other.lines) > len(piece.lines)
    return larger and other.first_line <= piece.first_line and ends[0] <= ends[1]
