"""How much memory may be filled with what other hosts send: the job beside us needs the rest."""

from __future__ import annotations

import os
import re

from hangdoc.capture.safe.text import read_text

_SHARE = 4
"""One part in so many of what is free. Judgement."""
_AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)
_GROUP = re.compile(r"^0::(/.*)$", re.MULTILINE)
_GROUPS = "/sys/fs/cgroup"
_UNKNOWN = 4 << 30
"""Bytes that are thought to be available where the kernel does not say. Judgement."""


def spare_memory() -> int:
    """Bytes: a fourth of what is available on this machine, and in the control groups that limit this process."""
    found = _AVAILABLE.search(read_text("/proc/meminfo") or "")
    available = int(found[1]) << 10 if found else _UNKNOWN
    group = _GROUP.search(read_text("/proc/self/cgroup") or "")
    folder = group[1] if group else ""
    while folder:
        most, used = (_number(f"{_GROUPS}{folder}/memory.{name}") for name in ("max", "current"))
        if most is not None and used is not None:
            available = min(available, max(0, most - used))
        folder = os.path.dirname(folder) if folder != "/" else ""  # noqa: PTH120 - no file is meant
    return available // _SHARE


def _number(path: str) -> int | None:
    text = (read_text(path, 64) or "").strip()
    return int(text) if text.isdigit() else None
