"""By which values ranks name what they wait for, and which of these differ: each then waits for a thing of its own.

Example: all ranks set `end/0` or `end/1` of `store = PrefixStore(f"try-{attempt}", base)` and wait for the other's, and
`attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]` is 0 on rank 0 and 1 on rank 1 → `attempt`, with these values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.names import is_rank_name
from hangdoc.diagnosis.program.items import Definition, Span
from hangdoc.diagnosis.program.places import Place
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.source.values import equals_rank, is_hidden
from hangdoc.model.process import Frame

_WHOLE_LINE = 1 << 16
_FARTHEST = 3.0
"""Of a definition behind the name of a thing: a name, what that was put together of, and once more. Judgement."""


@dataclass(frozen=True, slots=True)
class Apart:
    """One value that goes into the name of a thing, and is not alike on the ranks."""

    definition: Definition
    values: tuple[tuple[int, str], ...]
    """(rank, value) of all of them."""

    @property
    def name(self) -> str:
        """What the program calls it."""
        return self.definition.name

    @property
    def is_round(self) -> bool:
        """It is what a loop goes through: the ranks are in other rounds."""
        return self.definition.kind == "loop"

    @property
    def classes(self) -> list[tuple[int, ...]]:
        """The ranks of one value together, the fewest first."""
        found: dict[str, list[int]] = {}
        for rank, value in self.values:
            found.setdefault(value, []).append(rank)
        return sorted(map(tuple, found.values()), key=len)

    def parts(self, ranks: Collection[int]) -> bool:
        """True if these ranks have one value, and no other rank has it."""
        return any(set(each) == set(ranks) for each in self.classes)


def named_apart(
    case: Case, program: Program, lines: Iterable[Place], where: Frame, ranks: Collection[int]
) -> list[Apart]:
    """What goes into the statements at these lines, and has other values on some of the ranks than on others, the
    nearest first; ``where``: the frame that all of them are in. What is a rank's by design does not count."""
    found: dict[str, Apart] = {}
    for definition in behind(program, lines):
        own = _values(case, program, definition, where)
        known = {rank: own[rank] for rank in ranks if rank in own}
        if len(known) == len(ranks) and len(set(known.values())) > 1:
            found.setdefault(definition.name, Apart(definition, tuple(sorted(known.items()))))
    return list(found.values())


def behind(program: Program, lines: Iterable[Place]) -> Iterator[Definition]:
    """The definitions behind what stands at the lines, by values alone, the nearest first."""
    for file, line in lines:
        for each in program.slice_back(file, line, expression=Span(line, 0, line, _WHOLE_LINE)):
            if each.distance > _FARTHEST:
                break
            if all(isinstance(item, Definition) for item in (each.item, *each.path)):
                assert isinstance(each.item, Definition)
                yield each.item


def _values(case: Case, program: Program, definition: Definition, where: Frame) -> Mapping[int, str]:
    """Rank → its value, as the frames hold it, or the one variable of the environment that it was read from."""
    if is_rank_name(definition.name):
        return {}
    for file, function in ((where.file, where.function), (definition.file, definition.function)):
        seen = case.values.of(file, function, definition.name)
        if seen and not any(map(is_hidden, seen.values())):
            return {} if equals_rank(seen) else seen
    read = program.places.variables_of(definition)
    if len(read) != 1 or is_rank_name(read[0]):
        return {}
    each = {rank: dict(snapshot.environment).get(read[0], "") for rank, snapshot in case.ranks.items()}
    return {rank: value for rank, value in each.items() if value}
