"""Which rank a pasted stack is of: what stands above it, beside it, or in the name of its file.

Only the global rank counts. A rank on its host, in its node or within a group is none: 'LOCAL_RANK=2', 'PP1 TP0'.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

_LONGEST_HEADING = 120
_RANK = re.compile(r"(?<![A-Za-z_])rank\s{0,3}[=:#_-]?\s{0,3}(\d{1,6})(?![\d.])", re.IGNORECASE)
_NOT_GLOBAL = re.compile(r"(?:local|node|group|host|pp|dp|tp|ep|cp)[ _-]?$", re.IGNORECASE)
_TENSOR_PARALLEL = re.compile(r"(?<![A-Za-z0-9])TP[ _=]?(\d{1,4})(?![0-9A-Za-z])")
_OTHER_PARALLEL = re.compile(r"(?<![A-Za-z0-9])(?:PP|DP|EP|CP|ATTN|MOE)[A-Z_]{0,6}[ =]?\d")
_ENVIRONMENT = re.compile(r"(?<![A-Za-z_])RANK['\"]?\s?[=:]\s?['\"]?(\d{1,6})(?!\d)")
_WORLD = re.compile(r"(?<![A-Za-z_])WORLD_SIZE['\"]?\s?[=:]\s?['\"]?(\d{1,6})(?!\d)")
_IN_NAME = re.compile(r"(?<![A-Za-z])(?:(local|node|host)[_.-]?)?rank[_=.-]?(\d{1,6})(?!\d)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")
_MOST_BEYOND = 8
"""A lone number in a file's name is no rank from this many beyond twice the number of files on: it is a pid, or a
step. Chosen by hand: of 8 ranks somebody may have pasted the last one alone."""


def rank_in_heading(text: str) -> int | None:
    """The rank of a line above a stack: '=== rank 0 ===', 'TP0', 'RANK=3 LOCAL_RANK=1', '[12:00:00 TP3] Pyspy dump'.

    None where it names none, or several. TP0 counts only beside no other dimension: it then numbers all.
    """
    if len(text) > _LONGEST_HEADING:
        return None
    found = {
        int(m[1]) for m in _RANK.finditer(text) if _NOT_GLOBAL.search(text, max(0, m.start() - 8), m.start()) is None
    }
    if not found and not _OTHER_PARALLEL.search(text):
        found = {int(m[1]) for m in _TENSOR_PARALLEL.finditer(text)}
    return found.pop() if len(found) == 1 else None


def rank_in_environment(text: str) -> int | None:
    """3 of 'RANK=3 WORLD_SIZE=8'."""
    found = _ENVIRONMENT.search(text)
    return int(found[1]) if found is not None else None


def world_in_environment(text: str) -> int:
    """8 of 'RANK=3 WORLD_SIZE=8'; 0: none."""
    found = _WORLD.search(text)
    return int(found[1]) if found is not None else 0


def ranks_by_name(files: Mapping[str, int]) -> dict[str, int]:
    """File → the rank that its name tells; without those whose names tell none. ``files``: path → pid seen in it, or 0.

    'rank3.json', 'run/rank_3/stack.txt' → 3. A lone number counts too ('stack_3.txt' → 3), if it can be one of so many
    files and is no pid, and if no two files have the same.
    """
    found: dict[str, int] = {}
    alone: dict[str, int] = {}
    for file, pid in files.items():
        path = PurePosixPath(file)
        named = [m for part in path.parts[-2:] for m in _IN_NAME.finditer(part)]
        if named:
            found.update({file: int(named[-1][2])} if named[-1][1] is None else {})
            continue
        numbers = _NUMBER.findall(path.name.partition(".")[0])
        if len(numbers) == 1 and len(numbers[0]) < 7 and int(numbers[0]) != pid:
            alone[file] = int(numbers[0])
    fits = max(alone.values(), default=0) < 2 * len(files) + _MOST_BEYOND
    if fits and len(set(alone.values())) == len(alone) and not set(alone.values()) & set(found.values()):
        found |= alone
    return found
