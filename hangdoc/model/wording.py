"""How ranks, durations and foreign text are written. Used by the diagnosis and by the reports."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Control, format (bidirectional, zero-width), surrogate, private, unassigned, line separators."""


def fold_ranks(ranks: Iterable[int]) -> str:
    """``{0, 1, 2, 3, 5}`` → ``'0-3,5'``; two neighbours stay apart: ``'0,1'``."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)


def name_ranks(ranks: Iterable[int]) -> str:
    """``'rank 2'``, ``'ranks 0, 1 and 3'``; more than four are folded: ``'ranks 0-5,7'``."""
    members = sorted(set(ranks))
    if not members:
        return "no rank"
    if len(members) == 1:
        return f"rank {members[0]}"
    if len(members) > 4:
        return f"ranks {fold_ranks(members)}"
    return f"ranks {', '.join(map(str, members[:-1]))} and {members[-1]}"


def name_duration(seconds: float) -> str:
    """``'31 s'``, ``'2 min 5 s'``, ``'1 h 3 min'``; whole seconds, never negative."""
    whole = max(0, round(min(seconds, 1e9)))
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        minutes, rest = divmod(whole, 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, rest = divmod(whole // 60, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def harmless(text: str) -> str:
    """``text`` on one line with everything invisible escaped: job text may carry terminal sequences or
    characters that reverse the line."""
    return "".join(
        " "
        if character in "\n\t"
        else _escape(character)
        if unicodedata.category(character) in _HIDDEN_CATEGORIES
        else character
        for character in text
    )


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_STATES = (
    "blocked",
    "held",
    "idle",
    "opening",
    "polling",
    "reading",
    "running",
    "sleeping",
    "stopped",
    "stuck",
    "waiting",
)


def reads_as_state(text: str) -> bool:
    """Does the text follow 'is' without an 'in'? 'waiting on a queue' does, 'all_reduce' does not."""
    return text.startswith(_STATES)
