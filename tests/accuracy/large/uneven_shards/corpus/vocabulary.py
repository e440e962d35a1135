"""Characters and their numbers."""

from __future__ import annotations

import string
from collections.abc import Iterable

UNKNOWN, END = 0, 1
_FIRST = 2


class Vocabulary:
    """Fixed, so that ranks need not agree on one."""

    def __init__(self, characters: str = string.ascii_letters + string.digits + " .,|>_()=+:!\n") -> None:
        if len(set(characters)) != len(characters):
            raise ValueError("a character occurs twice")
        self._numbers = {character: number for number, character in enumerate(characters, _FIRST)}
        self._characters = {number: character for character, number in self._numbers.items()}
        self.unknown = 0

    def __len__(self) -> int:
        return _FIRST + len(self._numbers)

    def encode(self, text: str) -> list[int]:
        numbers = []
        for character in text:
            number = self._numbers.get(character, UNKNOWN)
            if number == UNKNOWN:
                self.unknown += 1
            numbers.append(number)
        numbers.append(END)
        return numbers

    def decode(self, numbers: Iterable[int]) -> str:
        return "".join(self._characters.get(n, "·") for n in numbers if n != END)
