"""The errors that a log tells of, one line each, its tracebacks folded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_PREFIX = re.compile(r"(\[[\w.]{1,40}\]:? ?)?(.*)", re.DOTALL)
"""What torchrun writes before a line: '[default3]:', or torch: '[rank3]: '."""
_ANNOUNCED = re.compile(r"(Exception in thread|Process) \S.*:$")
"""How Python begins to tell what ended a thread, or a child of multiprocessing."""
_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt|Timeout)(: .*)?$")
"""The last line of a traceback."""
_LOGGED = re.compile(r"\bERROR\b|\[Errno -?\d+\]")
"""What a program writes of an error that it goes on after."""
_MAX_LINE = 400


def told_errors(lines: Iterable[str]) -> Iterator[str]:
    """The lines that tell of exceptions and errors.

    Example: 'Exception in thread stats (run):', a traceback and 'KeyError: 3' → 'Exception in thread stats (run):
    KeyError: 3'.
    """
    announced = ""
    for line in (each[:_MAX_LINE] for each in lines):  # a file's lines may be of any length
        found = _PREFIX.match(line)
        body = found[2] if found is not None else line
        if not body or body.startswith((" ", "\t", "hangdoc", _TRACEBACK)):
            continue  # inside of a traceback, or hangdoc's own
        if _ANNOUNCED.match(body):
            announced = line
            continue
        if _RAISED.match(body):
            yield f"{announced} {body}"[:_MAX_LINE] if announced else line
        elif _LOGGED.search(body):
            yield line
        announced = ""
