"""Command lines without passwords, tokens, keys and program texts."""

from __future__ import annotations

from collections.abc import Sequence

from hangdoc.capture.safe.text import clean
from hangdoc.model.masking import mask_words

_LONGEST_WORD = 512


def without_secrets(words: Sequence[str]) -> tuple[str, ...]:
    """The words, each on one line and at most 512 characters long, with what may be a secret replaced by ``…``."""
    return tuple(clean(word, _LONGEST_WORD) for word in mask_words(words))
