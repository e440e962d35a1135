"""Text in one form: folded accents, single spaces, lower case where case says nothing."""

from __future__ import annotations

import unicodedata
from collections import OrderedDict

from corpus.documents import Document


def fold(text: str) -> str:
    if text.isascii():
        return text
    parts = unicodedata.normalize("NFKD", text)
    return "".join(c for c in parts if not unicodedata.combining(c))


def squeeze(text: str, *, keep_lines: bool) -> str:
    if keep_lines:
        lines = [line.rstrip() for line in text.splitlines()]
        return "\n".join(line for line in lines if line)
    return " ".join(text.split())


def shorten_runs(text: str, longest: int = 3) -> str:
    """`!!!!!!!` becomes `!!!`."""
    kept: list[str] = []
    run = 0
    for character in text:
        run = run + 1 if kept and kept[-1] == character else 1
        if run > longest and not character.isspace():
            continue
        kept.append(character)
    return "".join(kept)


class Normalizer:
    """With a small memory of what it has done, since forums quote themselves."""

    def __init__(self, capacity: int = 64) -> None:
        self.capacity = capacity
        self.hits = 0
        self._memory: OrderedDict[tuple[str, bool], str] = OrderedDict()

    def __call__(self, document: Document) -> str:
        is_code = document.kind == "code"
        key = (document.text, is_code)
        if key in self._memory:
            self.hits += 1
            self._memory.move_to_end(key)
            return self._memory[key]
        text = squeeze(fold(document.text), keep_lines=is_code)
        if not is_code:
            text = shorten_runs(text.lower())
        self._memory[key] = text
        if len(self._memory) > self.capacity:
            self._memory.popitem(last=False)
        return text
