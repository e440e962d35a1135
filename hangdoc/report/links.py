"""Links from a terminal's text to lines of code on this machine (OSC 8)."""

from __future__ import annotations

from pathlib import PurePosixPath
from urllib.parse import quote

from hangdoc.model.wording import harmless

_LONGEST = 1024


def link_to(file: str, line: int, host: str) -> str:
    """'file://node0/job/train.py#61'; '' where the name is none that a link may carry.

    Names come from the job, and a click opens what a link names: only Python files, by absolute paths without anything
    invisible in them or a step upwards, percent-encoded.
    """
    path = PurePosixPath(file)
    if not path.is_absolute() or path.suffix != ".py" or ".." in path.parts or harmless(file) != file:
        return ""
    if not file.isprintable() or len(file) > _LONGEST or not host:
        return ""
    return f"file://{quote(host, safe='')}{quote(file, safe='/')}#{int(line)}"
