"""What C++ frames say where Python's say nothing: the reader of ``native.toml``."""

from __future__ import annotations

import re
from functools import cache

from hangdoc.diagnosis.frames.names import pattern
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.process import Stack
from hangdoc.model.tables import table


@cache
def _waits() -> tuple[tuple[re.Pattern[str], ActivityKind, str], ...]:
    """(what a frame's function must match, kind, words) of each wait, in the table's order."""
    return tuple(
        (re.compile(entry["pattern"]), ActivityKind(entry["kind"]), entry["words"])
        for entry in table(__package__, "native")["wait"]
    )


def native_wait(frames: Stack) -> tuple[ActivityKind, str] | None:
    """Kind and words of the wait that native frames show; None where they show none."""
    for found, kind, words in _waits():
        if any(found.search(frame.function) for frame in frames):
            return kind, words
    return None


def native_function(frames: Stack) -> str:
    """The innermost native function worth naming, without its arguments; '' where there is none."""
    for frame in frames:
        if not pattern("plumbing", of="native").match(frame.function):
            return re.split(r"[(@<]", frame.function, maxsplit=1)[0].strip()
    return ""
