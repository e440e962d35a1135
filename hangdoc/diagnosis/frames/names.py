"""Names by which libraries, kernels and programs say what they do: the reader of ``names.toml``, ``native.toml`` and
``kernel.toml``."""

from __future__ import annotations

import re
from functools import cache

from hangdoc.model.tables import table


@cache
def names(entry: str, *, of: str = "names") -> tuple[str, ...]:
    """The names of one entry. Example: ``names('sleep', of='kernel')`` → ('hrtimer_nanosleep', …)."""
    return tuple(table(__package__, of)[entry]["names"])


@cache
def pattern(entry: str, *, of: str = "names") -> re.Pattern[str]:
    """The pattern of one entry; its parts, where it has several, are alternatives.

    Example: ``pattern('prompt_call').search('name = input("Who? ")')`` finds 'input('.
    """
    found = table(__package__, of)[entry]
    return re.compile("|".join(found["pattern"]), re.IGNORECASE if found.get("any_case") else 0)


def is_rank_name(name: str) -> bool:
    """True if programs use such a name for a rank, or for a flag made of it. Examples: 'local_rank', 'is_main'."""
    return any(pattern(kind).search(name) for kind in ("rank_word", "rank_flag"))
