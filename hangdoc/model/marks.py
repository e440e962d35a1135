"""Marks behind what hides a text: they tell which places of a program hold the same text, and not which one.

In a module that is kept whole, `store.set("ready/a", b"1")` is `store.set("…3fa9c1d2", b"...07b2e6f4")`: another place
with `"…3fa9c1d2"` names the same key. Marks are made with a random key that is never written anywhere, a new one for
each capture: those of two captures have nothing to do with each other.
"""

from __future__ import annotations

import hmac
import re
import secrets

from hangdoc.model.masking import mask_text
from hangdoc.model.snapshot import Module, SourceText
from hangdoc.model.token_forms import HIDDEN

HIDDEN_BYTES = "..."
"""What hides a text of bytes, which cannot hold ``…``."""
_OUR_SECRET = secrets.token_bytes(32)
"""Of this process."""
_DIGITS = 8
"""Of a mark. Among 5,000 different texts two have the same one in 3 captures of 1,000."""
_NAME = re.compile(r"[^\s…]{1,200}")
"""What may name a key, a file, a queue, a tag or a group: names hold no space. Sentences get no mark."""
_MARKED = re.compile(rf"({HIDDEN}|(?<=[\"'])\.\.\.)[0-9a-f]{{{_DIGITS}}}")


class Marks:
    """Makes the marks of one capture. ``name`` says which: equal marks of the same name are of equal texts."""

    def __init__(self, name: str = "") -> None:
        """``name``: of a capture that this process has made, whose marks are to be made again."""
        self.name = name or secrets.token_hex(4)
        self._key = hmac.digest(_OUR_SECRET, self.name.encode(), "sha256")

    def of(self, text: str) -> str:
        """The mark of a text; '' for one that names nothing, or has the form of a secret."""
        if not _NAME.fullmatch(text) or mask_text(text) != text:
            return ""
        return hmac.digest(self._key, text.encode("utf-8", "surrogatepass"), "sha256").hex()[:_DIGITS]


def unmarked(code: str) -> str:
    """Code as it is shown to people, without the marks: ``"…3fa9c1d2"`` → ``"…"``."""
    return _MARKED.sub(r"\1", code)


def shown(module: Module) -> SourceText:
    """The whole module as a piece of source, without its marks."""
    return SourceText(module.file, "<module>", 1, unmarked(module.text), module.cell)
