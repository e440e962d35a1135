"""Which documents are worth training on."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from corpus.documents import Document
from corpus.normalizing import Normalizer
from settings.schema import CorpusSettings


class Screened(NamedTuple):
    name: str
    kind: str
    text: str


def noise(text: str) -> float:
    """Share of characters that are neither letters nor blanks."""
    if not text:
        return 1.0
    odd = sum(1 for c in text if not (c.isalpha() or c.isspace()))
    return odd / len(text)


class Screen:
    """Drops what is too short, too noisy or known already, and cuts what is too long. Counts why."""

    def __init__(self, settings: CorpusSettings, normalizer: Normalizer) -> None:
        self.settings = settings
        self.normalizer = normalizer
        self.seen: set[bytes] = set()
        self.dropped: Counter[str] = Counter()

    def begin(self) -> None:
        self.seen.clear()
        self.dropped.clear()

    def __call__(self, documents: Iterable[Document]) -> Iterator[Screened]:
        for document in documents:
            text = self.normalizer(document)
            if len(text) < self.settings.shortest:
                self.dropped["short"] += 1
                continue
            limit = self.settings.noise_limit * (1.5 if document.kind == "code" else 1.0)
            if noise(text) > limit:
                self.dropped["noisy"] += 1
                continue
            fingerprint = hashlib.blake2b(text.encode(), digest_size=8).digest()
            if fingerprint in self.seen:
                self.dropped["known"] += 1
                continue
            self.seen.add(fingerprint)
            if len(text) > self.settings.longest:
                text = text[: self.settings.longest]
                self.dropped["cut"] += 1
            yield Screened(document.name, document.kind, text)

    def report(self) -> str:
        reasons = [f"{count} {reason}" for reason, count in self.dropped.most_common() if count]
        return ", ".join(reasons) if reasons else "nothing dropped"
