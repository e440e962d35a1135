"""A document, and a generator of plausible ones that needs no download."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

_NOUNS = ("tensor", "river", "engine", "market", "garden", "signal", "forest", "ledger", "planet", "kernel", "harbor")
_VERBS = ("moves", "holds", "finds", "opens", "reads", "keeps", "turns", "sends", "marks", "draws")
_FILLERS = ("the", "a", "this", "that", "every", "some", "no")
_ACCENTS = {"e": "é", "a": "à", "o": "ö", "u": "ü"}


@dataclass(frozen=True)
class Document:
    """Text with where it came from."""

    name: str
    kind: str
    text: str

    @property
    def length(self) -> int:
        return len(self.text)


def _sentence(rng: random.Random) -> str:
    words = []
    for _ in range(rng.randint(1, 3)):
        words += [rng.choice(_FILLERS), rng.choice(_NOUNS), rng.choice(_VERBS)]
    return " ".join(words)


def _book(rng: random.Random) -> str:
    return ". ".join(_sentence(rng).capitalize() for _ in range(rng.randint(2, 5))) + "."


def _forum(rng: random.Random) -> str:
    text = _sentence(rng)
    if rng.random() < 0.3:
        text = "> " + text + "\n" + _sentence(rng)
    if rng.random() < 0.25:
        text += "!" * rng.randint(1, 12)
    return text + " " + _sentence(rng)


def _code(rng: random.Random) -> str:
    lines = [f"def {rng.choice(_NOUNS)}({rng.choice(_NOUNS)}):"]
    while len(lines) < rng.randint(3, 6):
        indent = "    " * (2 if len(lines) > 2 and rng.random() < 0.4 else 1)
        lines.append(f"{indent}{rng.choice(_NOUNS)} = {rng.choice(_NOUNS)} + {rng.randint(0, 99)}")
    return "\n".join(lines)


def _crawl(rng: random.Random) -> str:
    text = " | ".join(_sentence(rng) for _ in range(rng.randint(2, 4)))
    return "".join(_ACCENTS[c] if c in _ACCENTS and rng.random() < 0.1 else c for c in text)


_WRITERS = {"books": _book, "forum": _forum, "code": _code, "crawl": _crawl}


def write_documents(name: str, kind: str, count: int, seed: int, copies: float) -> Iterator[Document]:
    """``count`` documents; a share of ``copies`` repeats an earlier one, as mirrors of a site do."""
    rng = random.Random(seed)
    writer = _WRITERS[kind]
    originals: list[str] = []
    for number in range(count):
        if originals and rng.random() < copies:
            text = rng.choice(originals[:20])
        else:
            text = writer(rng)
            originals.append(text)
        yield Document(f"{name}/{number:05d}", kind, text)
