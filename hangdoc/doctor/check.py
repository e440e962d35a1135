"""One finding of the doctor's."""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.errors import HangdocError

OK, LIMITED, BLOCKED = "ok", "limited", "blocked"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. ``state``: 'ok', 'limited' (hangdoc works and sees less) or 'blocked'."""

    name: str
    state: str
    finding: str
    fix: str = ""


def failed(name: str, state: str, error: Exception) -> Check:
    """A check that ended in an error."""
    if isinstance(error, HangdocError):
        return Check(name, state, error.what, error.remedy)
    return Check(name, state, str(error))
