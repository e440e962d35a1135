"""The catalogue of causes: code → what it means, how it comes about, how to fix it. The texts are data."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from hangdoc.model.diagnosis import Cause
from hangdoc.model.tables import table


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One cause. ``recognised``: this version gives the code by itself."""

    code: str
    name: str
    title: str
    recognised: bool
    explanation: str
    arises: tuple[str, ...]
    tell_apart: str
    fix: str

    @property
    def cause(self) -> Cause:
        """What a diagnosis carries of it."""
        return Cause(self.code, self.name, self.title)


@functools.cache
def catalogue() -> dict[str, CatalogueEntry]:
    """All entries by code, in the order of their codes."""
    return {
        code: CatalogueEntry(
            code=code,
            name=entry["name"],
            title=entry["title"],
            recognised=entry["recognised"],
            explanation=entry["explanation"].strip(),
            arises=tuple(entry["arises"]),
            tell_apart=entry["tell_apart"].strip(),
            fix=entry["fix"].strip(),
        )
        for code, entry in sorted(table("hangdoc.model", "causes").items())
    }


def cause(code: str) -> Cause:
    """The cause with that code. Raises ``KeyError`` for a code that the catalogue does not have."""
    return catalogue()[code].cause


def find(text: str) -> CatalogueEntry | None:
    """The entry a person means: by code or name, in any case; the code's number is enough."""
    wanted = text.strip().lower()
    if wanted.isascii() and wanted.isdigit():
        wanted = f"hd{wanted}"
    for entry in catalogue().values():
        if wanted in (entry.code.lower(), entry.name):
            return entry
    return None


def nearest(text: str) -> tuple[CatalogueEntry, ...]:
    """Up to three entries whose code or name resembles ``text``."""
    import difflib

    known = {word: entry for entry in catalogue().values() for word in (entry.code.lower(), entry.name)}
    words = difflib.get_close_matches(text.strip().lower(), known, n=6, cutoff=0.5)
    return tuple(dict.fromkeys(known[word] for word in words))[:3]
