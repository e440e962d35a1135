"""What a message is made of. Whoever has something to say names the parts; how a part reads is decided in one place.

Example: ``Sentence([Does((0, 1), "waits", "wait"), " at ", Place("/job/train.py", 9, "main")])`` becomes
'Ranks 0 and 1 wait at train.py:9 main().'
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file: 'train.py:61', or 'train.py:61 train()' where the function says more."""

    file: str
    line: int
    function: str = ""


@dataclass(frozen=True, slots=True)
class Condition:
    """A line of source that decides, with its place: '`if loss < best:` (train.py:41)'."""

    source: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Ranks:
    """'rank 2', 'ranks 0, 1 and 3', 'ranks 0-5,7'."""

    ranks: tuple[int, ...]

    @classmethod
    def of(cls, ranks: Iterable[int]) -> Ranks:
        """The same from any collection."""
        return cls(tuple(ranks))


@dataclass(frozen=True, slots=True)
class Verb:
    """'waits' of one rank, 'wait' of several."""

    ranks: tuple[int, ...]
    one: str
    many: str


@dataclass(frozen=True, slots=True)
class Does:
    """The ranks and their verb: 'rank 1 waits', 'ranks 0 and 2 wait'."""

    ranks: tuple[int, ...]
    one: str
    many: str


@dataclass(frozen=True, slots=True)
class Values:
    """Each value once, with the ranks that have it: '5 on rank 0, 4 on ranks 1 and 2'."""

    by_rank: Mapping[int, str]
    separator: str = ", "


@dataclass(frozen=True, slots=True)
class State:
    """What one rank does: a verb, in both numbers, and the rest of the clause."""

    rank: int
    one: str
    many: str
    rest: Message


@dataclass(frozen=True, slots=True)
class States:
    """What each of several ranks does; those that do the same are one clause, the largest first.

    Example: 'ranks 0, 1 and 3 wait in barrier; rank 2 is at train.py:9; 5 more ranks are elsewhere'.
    """

    each: tuple[State, ...]
    most: int = 2
    """Clauses, after which the ranks are only counted."""


@dataclass(frozen=True, slots=True)
class Joined:
    """Several messages with something between them; what says nothing is left out."""

    parts: Sequence[Message]
    between: str = "; "


@dataclass(frozen=True, slots=True)
class Sentence:
    """Clauses with '; ' between them, an upper-case letter first and a full stop last. Names of functions and files
    keep their letters."""

    clauses: Sequence[Message]
    end: str = "."


@dataclass(frozen=True, slots=True)
class Sentences:
    """One fact a sentence: what ``joined`` put together becomes sentences, anything else is one.

    Example: joined("the loop ended early", "it last wrote: done") becomes 'The loop ended early. It last wrote: done.'
    """

    said: Message


Part: TypeAlias = "Place | Condition | Ranks | Verb | Does | Values | States | Joined | Sentence | Sentences"
Message: TypeAlias = "str | Part | Sequence[Message]"
"""A part, or parts one after the other. '' and () say nothing."""


def sentence(*clauses: Message) -> Sentence:
    """'Rank 2 is stopped; ranks 0 and 1 wait in barrier.'"""
    return Sentence(clauses)


def joined(*parts: Message, between: str = "; ") -> Joined:
    """'rank 2 is stopped; ranks 0 and 1 wait in barrier', as a part of something longer."""
    return Joined(parts, between)


def without(message: Message, part: str) -> Message:
    """The message, where ``part`` is left out wherever it stands."""
    if isinstance(message, str):
        return "" if message == part else message
    if isinstance(message, Joined):
        return Joined([without(each, part) for each in message.parts], message.between)
    if isinstance(message, Sentence):
        return Sentence([without(each, part) for each in message.clauses], message.end)
    if isinstance(message, States):
        return replace(message, each=tuple(replace(each, rest=without(each.rest, part)) for each in message.each))
    return [without(each, part) for each in message] if isinstance(message, Sequence) else message


def conditions_in(message: Message) -> Iterator[Condition]:
    """The conditions that a message cites, in its order."""
    if isinstance(message, Condition):
        yield message
    elif isinstance(message, Joined):
        yield from conditions_in(message.parts)
    elif isinstance(message, Sentence):
        yield from conditions_in(message.clauses)
    elif isinstance(message, Sentences):
        yield from conditions_in(message.said)
    elif isinstance(message, Sequence) and not isinstance(message, str):
        for part in message:
            yield from conditions_in(part)
