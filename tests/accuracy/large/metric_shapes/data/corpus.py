"""A made corpus: each rank reads the shard of its own domain, whose texts have their own lengths and words."""

from __future__ import annotations

import logging
import random
from collections import Counter
from dataclasses import dataclass

from config.schema import DataSettings
from data.cache import TokenCache
from distributed.setup import Ranks

LOG = logging.getLogger("tagger.data")
PAD, UNKNOWN, RARE = 0, 1, 2
LENGTHS = {"prose": (12, 22), "logs": (9, 16), "chat": (3, 7), "code": (10, 24)}
SYLLABLES = ("ba", "de", "ki", "lo", "mu", "ne", "pi", "ra", "su", "to")


@dataclass(frozen=True)
class Text:
    tokens: tuple[int, ...]
    tag: int
    domain: str
    rare: bool = False


@dataclass(frozen=True)
class Shard:
    domain: str
    texts: tuple[Text, ...]
    split: str

    @property
    def counts(self) -> Counter[int]:
        return Counter(text.tag for text in self.texts)

    def __len__(self) -> int:
        return len(self.texts)


class Vocabulary:
    """Words and their numbers."""

    def __init__(self, words: list[str]) -> None:
        self.words = ["<pad>", "<unknown>", "<rare>", *words]
        self.numbers = {word: number for number, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, words: list[str]) -> tuple[int, ...]:
        return tuple(self.numbers.get(word, UNKNOWN) for word in words)


def build_vocabulary(settings: DataSettings) -> Vocabulary:
    words: list[str] = []
    for number in range(settings.words):
        first, rest = divmod(number, len(SYLLABLES))
        word = SYLLABLES[rest] + SYLLABLES[first % len(SYLLABLES)]
        words.append(word if word not in words else f"{word}{first}")
    return Vocabulary(words)


def build_shard(
    settings: DataSettings, ranks: Ranks, vocabulary: Vocabulary, *, split: str, cache: TokenCache
) -> Shard:
    domain = settings.domains[ranks.rank % len(settings.domains)]
    chance = random.Random(f"{domain}-{split}-{ranks.rank // len(settings.domains)}")
    size = settings.texts if split == "train" else settings.valid_texts
    if domain == "code" and split == "train":
        size -= size // 6
    texts = []
    for index in range(size):
        words, tag = draw(chance, settings, vocabulary, domain)
        key = " ".join(words)
        tokens = cache.get(key)
        if tokens is None:
            tokens = vocabulary.encode(words)
            cache.put(key, tokens)
        is_rare = chance.random() < settings.rare_share
        texts.append(Text((RARE, *tokens[1:]) if is_rare and index % 2 else tokens, tag, domain, is_rare))
    shard = Shard(domain, tuple(texts), split)
    missing = [tag for tag in range(settings.tags) if tag not in shard.counts]
    if missing:
        LOG.warning("the %s shard of %s has no text with the tags %s", split, domain, missing)
    LOG.info("%s: %d texts of %s, cache hits %d", split, len(shard), domain, cache.hits)
    return shard


def draw(chance: random.Random, settings: DataSettings, vocabulary: Vocabulary, domain: str) -> tuple[list[str], int]:
    """Words of one text and its tag: a tag prefers words from its own part of the vocabulary."""
    shortest, longest = LENGTHS[domain]
    length = min(chance.randint(shortest, longest), settings.longest_text)
    tag = chance.randrange(settings.tags)
    words = []
    while len(words) < length:
        if chance.random() < 0.6:
            number = 3 + (chance.randrange(settings.words // settings.tags) * settings.tags + tag) % settings.words
        else:
            number = 3 + chance.randrange(settings.words)
        words.append(vocabulary.words[number] if chance.random() > 0.02 else "typo")
    return words, tag
