"""How a message reads: the one place that turns parts into a string."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from hangdoc.model.message import (
    Condition,
    Does,
    Joined,
    Message,
    Place,
    Ranks,
    Sentence,
    Sentences,
    States,
    Values,
    Verb,
)
from hangdoc.model.wording import FileNames, name_ranks

_Said = TypeVar("_Said", bound=Hashable)


@dataclass(frozen=True)
class Writer:
    """Writes the messages about one job, whose files have their names for good: two train.py never look alike."""

    names: FileNames

    def write(self, message: Message) -> str:
        """The message as one string."""
        # One case for each part of a message: the list is complete here, and nowhere else.
        match message:
            case str():
                return message
            case Place():
                return self._place(message)
            case Condition(source, file, line):
                return f"`{source}` ({self._place(Place(file, line))})"
            case Ranks(ranks):
                return name_ranks(ranks)
            case Verb(ranks, one, many):
                return one if len(ranks) == 1 else many
            case Does(ranks, one, many):
                return f"{name_ranks(ranks)} {one if len(ranks) == 1 else many}"
            case Values(by_rank, separator):
                return separator.join(f"{value} on {name_ranks(ranks)}" for value, ranks in _folded(by_rank))
            case States():
                return self._states(message)
            case Joined(parts, between):
                return self._joined(parts, between)
            case Sentence(clauses, end):
                return _as_sentence(self._joined(clauses, "; "), end)
            case Sentences(Joined(parts, "; ")):
                return self._joined([Sentences(part) for part in parts], " ")
            case Sentences(said):
                return _as_sentence(self.write(said), ".")
            case _:
                return "".join(self.write(part) for part in message)

    def _joined(self, parts: Iterable[Message], between: str) -> str:
        # What is said twice is said once: never "A or A".
        return between.join(dict.fromkeys(said for part in parts if (said := self.write(part))))

    def _place(self, place: Place) -> str:
        line = f"{self.names.short(place.file)}:{place.line}"
        named = place.function and not place.function.startswith("<")
        return f"{line} {place.function}()" if named else line

    def _states(self, states: States) -> str:
        """Folded by what is read, not by what is meant: two clauses of the same words are one."""
        folded = _folded({state.rank: (state.one, state.many, self.write(state.rest)) for state in states.each})
        largest_first = sorted(folded, key=lambda item: -len(item[1]))
        more = sum(len(ranks) for _, ranks in largest_first[states.most :])
        shown = largest_first if more == 1 else largest_first[: states.most]
        clauses = [f"{self.write(Does(ranks, one, many))} {rest}" for (one, many, rest), ranks in shown]
        return self._joined([*clauses, f"{more} more ranks are elsewhere" if more > 1 else ""], "; ")


def _as_sentence(said: str, end: str) -> str:
    """'Rank 2 waits.' of 'rank 2 waits'; what begins with the name of a file or function keeps its letters."""
    word = said.partition(" ")[0].rstrip(",;:").replace("'", "").replace("-", "")
    first = said[:1].upper() if word.isalpha() else said[:1]
    return f"{first}{said[1:]}{'' if said.endswith(end) else end}" if said else ""


def _folded(by_rank: Mapping[int, _Said]) -> list[tuple[_Said, tuple[int, ...]]]:
    """Each thing that is said, with its ranks, in the order in which they come."""
    ranks: dict[_Said, list[int]] = {}
    for rank, said in by_rank.items():
        ranks.setdefault(said, []).append(rank)
    return [(said, tuple(each)) for said, each in ranks.items()]
