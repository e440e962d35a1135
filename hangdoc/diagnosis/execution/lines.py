"""Which lines of the program have run on which ranks, as the interpreters' counters and the probes' recorders say.

Example: of `if not rows:` at 41 with `self.skipped += 1` at 42, rank 2 has run line 42 and ranks 0 and 1 have not; of
a line without a counter (`pass`, `continue`), nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function
from hangdoc.model.process import Frame, Process, Stack
from hangdoc.model.ran import RanCode


@dataclass(slots=True)
class _File:
    """What one rank has run of one file. ``uncalled``: the first lines of functions that it never called."""

    ran: set[int] = field(default_factory=set)
    idle: set[int] = field(default_factory=set)
    lately: set[int] = field(default_factory=set)
    """Those of ``idle`` that may have run in the first rounds."""
    called: set[int] = field(default_factory=set)
    uncalled: set[int] = field(default_factory=set)


class Split(NamedTuple):
    """Ranks, by whether they have run a line."""

    ran: tuple[int, ...]
    never: tuple[int, ...]
    unknown: tuple[int, ...]


class Lines:
    """What has run, by rank, file and line."""

    def __init__(self, sources: Sources, processes: Mapping[int, Process], stacks: Mapping[int, Stack]) -> None:
        """``stacks``: that of each rank's main thread. Of a rank that is at a line which it never ran, by what is said
        of its lines, nothing is known."""
        self._sources = sources
        self._ranks: dict[int, dict[str, _File]] = {}
        for rank, process in processes.items():
            for code in process.code:
                self._add(self._ranks.setdefault(rank, {}).setdefault(code.file, _File()), code)
        for rank in list(self._ranks):
            if any(self.ran(rank, f.file, f.line) is False for f in user_stack(stacks.get(rank, ()))):
                del self._ranks[rank]

    @staticmethod
    def _add(file: _File, code: RanCode) -> None:
        file.ran.update(code.ran)
        file.idle.update(code.idle)
        file.lately.update(code.idle if code.since_warm else ())
        known = (file.called if code.called or code.ran else file.uncalled) if code.called is not None else file.called
        known.add(code.first_line)

    def __bool__(self) -> bool:
        return bool(self._ranks)

    def known(self, ranks: Iterable[int]) -> tuple[int, ...]:
        """Those of the ranks of which anything is known."""
        return tuple(rank for rank in ranks if rank in self._ranks)

    def ran(self, rank: int, file: str, line: int) -> bool | None:
        """True if the rank has run the line, False if it never has, None where that is not known: also of a line that
        may have run in the first rounds."""
        lines = self._ranks.get(rank, {}).get(file)
        return None if lines is not None and line in lines.lately - lines.ran else self.lately(rank, file, line)

    def lately(self, rank: int, file: str, line: int) -> bool | None:
        """The same; False also where it has not since the function became warm. It tells sides apart, and is no
        proof."""
        lines = self._ranks.get(rank, {}).get(file)
        if lines is None:
            return None
        if line in lines.ran:
            return True
        if line in lines.idle:
            return False
        return False if self._is_uncalled(lines, file, line) else None

    def split(self, ranks: Iterable[int], file: str, line: int) -> Split:
        """The ranks by what ``ran`` says of each."""
        found = {rank: self.ran(rank, file, line) for rank in ranks}
        parts = (tuple(rank for rank, has in found.items() if has is way) for way in (True, False, None))
        return Split(*parts)

    def never_called(self, ranks: Iterable[int], file: str, line: int) -> bool:
        """True if none of the ranks has called the function around the line."""
        per_rank = [self._ranks[rank].get(file) for rank in self.known(ranks)]
        return bool(per_rank) and all(f is not None and self._is_uncalled(f, file, line) for f in per_rank)

    def _is_uncalled(self, lines: _File, file: str, line: int) -> bool:
        tree = self._sources.function(file, line) if lines.uncalled else None
        function = enclosing_function(tree, line) if tree is not None else None
        if function is None or not hasattr(function, "name"):
            return False
        decorators = [each.lineno for each in getattr(function, "decorator_list", ())]
        first = {getattr(function, "lineno", 0), *decorators}
        return not first.isdisjoint(lines.uncalled) and first.isdisjoint(lines.called)

    def ran_what_no_other_has(self, ranks: Iterable[int]) -> tuple[int, ...]:
        """The ranks that have each run a line of the user's that no other of these has.

        Example: rank 0 has run lines 3 and 4, rank 1 lines 3 and 5, ranks 2 and 3 line 3 → (0, 1).
        """
        alone: dict[tuple[str, int], int | None] = {}
        for rank in self.known(ranks):
            for file, lines in self._ranks[rank].items():
                for line in lines.ran if not is_library(Frame(file, 0, "")) else ():
                    alone[file, line] = None if (file, line) in alone else rank
        return tuple(sorted({rank for rank in alone.values() if rank is not None}))

    def ran_alone(self, ranks: tuple[int, ...], others: tuple[int, ...]) -> Iterator[tuple[str, int]]:
        """(file, line) of the user's lines that each of the ranks has run and none of the others has."""
        mine, theirs = self.known(ranks), self.known(others)
        if not mine or not theirs:
            return
        for file in sorted(set.intersection(*(set(self._ranks[rank]) for rank in mine))):
            if is_library(Frame(file, 0, "")):
                continue
            for line in sorted(set.intersection(*(self._ranks[rank][file].ran for rank in mine))):
                if all(self.lately(rank, file, line) is False for rank in theirs):
                    yield file, line

    def called_alone(self, ranks: tuple[int, ...], others: tuple[int, ...]) -> Iterator[tuple[str, int]]:
        """(file, first line) of the user's functions that each of the ranks has called and none of the others has."""
        mine, theirs = self.known(ranks), self.known(others)
        for file in sorted(self._ranks[mine[0]]) if mine and theirs else ():
            per_rank = [self._ranks[rank].get(file, _File()) for rank in (*mine, *theirs)]
            called = set.intersection(*(each.called for each in per_rank[: len(mine)]))
            uncalled = set.intersection(*(each.uncalled - each.called for each in per_rank[len(mine) :]))
            yield from ((file, line) for line in sorted(called & uncalled) if not is_library(Frame(file, 0, "")))
