"""The calls of a program as the alignment sees them, made when somebody asks for them.

Of thousands of ranks and groups, most are never looked at.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from hangdoc.diagnosis.calls.history import RankProgram, Token


class ProgramTokens(Sequence["Token"]):
    """All calls of a program, or some of them, in their order."""

    __slots__ = ("_all", "_places", "_program")

    def __init__(self, program: RankProgram, places: Sequence[int] | None = None) -> None:
        """``places``: where they are in the program; None: all of it."""
        self._program = program
        self._places = range(len(program.journal.calls)) if places is None else places
        self._all: list[Token] | None = None

    def _made(self) -> list[Token]:
        return self._program.all_tokens()

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Token]:
        if self._all is None:
            self._all = self._made()
        return iter(self._all)

    @overload
    def __getitem__(self, at: int) -> Token: ...
    @overload
    def __getitem__(self, at: slice) -> list[Token]: ...
    def __getitem__(self, at: int | slice) -> Token | list[Token]:
        if self._all is not None:
            return self._all[at]
        if isinstance(at, slice):
            return [self._program.token(place) for place in self._places[at]]
        return self._program.token(self._places[at])


class RecordedTokens(ProgramTokens):
    """The calls of a program in one group, in order of their numbers."""

    __slots__ = ("_group", "numbers", "pending")

    def __init__(
        self, program: RankProgram, group: str, places: Sequence[int], numbers: Sequence[int], pending: Sequence[int]
    ) -> None:
        """``pending``: which of the numbers have not completed."""
        super().__init__(program, places)
        self._group = group
        self.numbers, self.pending = numbers, pending

    def _made(self) -> list[Token]:
        return self._program.tokens_at(self._group, self._places)

    def numbered(self, number: int) -> Token | None:
        """The call with that number."""
        if not self.numbers:
            return None
        at = number - self.numbers[0]
        if not (0 <= at < len(self) and self.numbers[at] == number):
            at = bisect_left(self.numbers, number)
        return self[at] if at < len(self) and self.numbers[at] == number else None

    def since(self, first: int) -> RecordedTokens:
        """As ``since``."""
        if not self.numbers or self.numbers[0] >= first:
            return self
        waiting = frozenset(self.pending)
        kept = [
            at
            for at, number in enumerate(self.numbers)
            if number >= first or (number in waiting and self[at].pending and self[at].state)
        ] or [len(self) - 1]
        places, numbers = ([column[at] for at in kept] for column in (self._places, self.numbers))
        return RecordedTokens(self._program, self._group, places, numbers, sorted(waiting.intersection(numbers)))


def since(calls: Sequence[Token], first: int) -> Sequence[Token]:
    """The calls from that number on, and those that a device has not completed; the last one where there is none."""
    if isinstance(calls, RecordedTokens):
        return calls.since(first)
    return [t for t in calls if t.sequence >= first or (t.pending and t.state)] or calls[-1:]


def first_number(calls: Sequence[Token]) -> int:
    """The number of the first call."""
    return calls.numbers[0] if isinstance(calls, RecordedTokens) else calls[0].sequence


def last_number(calls: Sequence[Token]) -> int:
    """The number of the last call; 0 where there is none."""
    if isinstance(calls, RecordedTokens):
        return calls.numbers[-1] if calls else 0
    return calls[-1].sequence if calls else 0


def first_pending(calls: Sequence[Token]) -> Token | None:
    """The first call that has not completed. Of recorded ones, no other is made for it."""
    if isinstance(calls, RecordedTokens):
        found = (calls.numbered(number) for number in calls.pending)
        return next((token for token in found if token is not None and token.pending), None)
    return next((token for token in calls if token.pending), None)


def pending_numbers(calls: Sequence[Token]) -> Sequence[int]:
    """The numbers of the calls that have not completed, in their order."""
    if isinstance(calls, RecordedTokens):
        return calls.pending
    return [call.sequence for call in calls if call.pending]
