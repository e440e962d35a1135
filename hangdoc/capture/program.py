"""The program's text, in pieces and whole, and which lines of the job's output it wrote."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hangdoc.capture.notes import Notes
from hangdoc.capture.rank_outputs import RankOutputs
from hangdoc.capture.read import sources
from hangdoc.capture.read.parsed_files import ParsedFiles
from hangdoc.capture.read.probe_answers import TypedIn
from hangdoc.capture.read.process_looks import Look
from hangdoc.capture.read.source_files import Witness
from hangdoc.capture.request import CaptureOptions
from hangdoc.capture.safe.deadline import Task
from hangdoc.model.marks import Marks
from hangdoc.model.process import Process
from hangdoc.model.ran import RanCode, one_sided, partly_idle
from hangdoc.model.snapshot import MODULES, Module, RankSnapshot, SourceText, Unavailable, Written

_SECONDS = 3.5
"""For reading what is on the stacks, which takes some hundredths. Judgement."""
_WRITTEN_SECONDS = 2.0
"""For finding who wrote the lines in the output; 1,000 lines and 300 texts take 0.05 s (measured)."""
_LIBRARY_SECONDS = 6.0
"""For the text of the libraries on the stacks. Judgement."""
_MODULE_SECONDS = 1.5
"""For modules that were not read meanwhile; 20,000 lines take 1 s (measured). Judgement."""
_PATIENCE = 2.0
"""For the file that is being read then, on a busy machine. Judgement."""


@dataclass(frozen=True, slots=True)
class Code:
    """The program's text, what is ``missing`` of it, and the lines of output that it wrote."""

    texts: tuple[SourceText, ...] = ()
    modules: tuple[Module, ...] = ()
    missing: tuple[Unavailable, ...] = ()
    written: tuple[Written, ...] = ()


class Program:
    """Of one capture. ``rank_of``: by pid."""

    def __init__(self, options: CaptureOptions, notes: Notes, outputs: RankOutputs, rank_of: Mapping[int, int]) -> None:
        self._wanted = not options.no_source
        self._notes, self._outputs, self._rank_of = notes, outputs, rank_of
        self._files = ParsedFiles((), keep_strings=options.keep_strings, marks=Marks())

    def learn(self, witnesses: Sequence[Witness], typed_in: Mapping[str, TypedIn]) -> None:
        """See ``ParsedFiles.learn``."""
        self._files.learn(witnesses, typed_in)

    def read_ahead(self, look: Look, until: float) -> None:
        """Read and parse, beside what else is done, what the stacks name by now: of 20,000 lines that takes a second,
        which the two looks lie apart anyway. ``until``: monotonic."""
        if self._wanted:
            stacks = [thread.frames for state in look.states.values() for thread in state.threads]
            found = sources.Sources(stacks, self._files)
            Task(lambda: found.of_modules((), until))

    def read(
        self,
        ranks: Sequence[RankSnapshot],
        launcher: Process | None,
        roots: tuple[str, ...],
        loaded: Iterable[str],
    ) -> Code:
        """``roots``: of libraries. ``loaded``: the files of what the ranks have imported."""
        if not self._wanted:
            return Code()
        of_ranks = (stack for rank in ranks for stack in sources.stacks_of(rank))
        stacks = (*of_ranks, *sources.stacks_of_launcher(launcher))
        found = sources.Sources(stacks, self._files, roots)
        reading = Task(found.of_users)
        texts, missing = self._notes.result(reading, "source", time.monotonic() + _SECONDS, ((), ()))
        written, texts = self._more(found, texts, ranks) if texts else ((), ())
        until = time.monotonic() + _MODULE_SECONDS
        keeping = Task(lambda: found.of_modules(loaded, until))
        modules, left_out = self._notes.result(keeping, MODULES, until + _PATIENCE, ((), ()))
        return Code(texts, modules, (*missing, *left_out), written)

    def _more(
        self, found: sources.Sources, texts: tuple[SourceText, ...], ranks: Sequence[RankSnapshot]
    ) -> tuple[tuple[Written, ...], tuple[SourceText, ...]]:
        """The lines that the program wrote; ``texts`` with what else may tell why the ranks part."""
        until = time.monotonic() + _WRITTEN_SECONDS
        matching = Task(lambda: found.written(self._outputs.ends(), self._rank_of, until - _WRITTEN_SECONDS / 4))
        written, writing = self._notes.result(matching, "log", until, ((), ()))
        # The libraries' make the reason clearer, where they can be had in time.
        more = Task(lambda: (*found.of_whole_files(), *found.of_code(_telling(ranks)), *found.of_libraries()))
        with contextlib.suppress(Exception):
            texts = tuple(dict.fromkeys((*texts, *more.result(time.monotonic() + _LIBRARY_SECONDS))))
        return written, tuple(dict.fromkeys((*texts, *writing)))


def _telling(ranks: Sequence[RankSnapshot]) -> list[RanCode]:
    """The functions whose counters may tell why the ranks part."""
    codes = [rank.process.code for rank in ranks if rank.process is not None]
    elsewhere = any((rank.world_size or 0) > len(codes) for rank in ranks)
    return [*one_sided(codes), *(partly_idle(codes) if elsewhere else ())]
