"""The errors that a log tells of, one line each, its tracebacks folded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_PREFIX = re.compile(r"((?:\[[\w.]{1,40}\]:? ?){0,4})(.*)", re.DOTALL)
"""What torchrun writes before a line: '[default3]:', and torch: '[rank3]: '; one after the other where both do."""
ANNOUNCED = re.compile(r"(Exception in thread|Process) \S.*:$")
"""How Python begins to tell what ended a thread, or a child of multiprocessing."""
_THREAD = re.compile(r"Exception in thread (\S.*?)(?: \(.*\))?:$")
"""Python 3.11's threading.excepthook: the thread's name; a default one has its function behind it in brackets."""
TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt|Timeout)(: .*)?$")
"""The last line of a traceback."""
_LOGGED = re.compile(r"\bERROR\b(?!\W{1,4}-?\d)|\[Errno -?\d+\]")
"""What a program writes of an error that it goes on after."""
_NUMBER = re.compile(r"[^:]*: -?[\d.]+(e-?\d+)?%?$")
"""'MeanSquaredError: 0.12' and 'KeyError: 3': only after a traceback it is an exception."""
_MAX_LINE = 400


def told_errors(lines: Iterable[str]) -> Iterator[str]:
    """The lines that tell of exceptions and errors.

    Example: 'Exception in thread stats (run):', a traceback and 'KeyError: 3' → 'Exception in thread stats (run):
    KeyError: 3'.
    """
    announced: dict[str, str] = {}
    """By prefix: ranks that share a file write between each other's lines."""
    for line in (each[:_MAX_LINE] for each in lines):  # a file's lines may be of any length
        prefix, body = split_prefix(line)
        if not body or body.startswith("hangdoc"):
            continue
        if body.startswith((" ", "\t", TRACEBACK)):  # inside of a traceback
            announced.setdefault(prefix, "")
            continue
        if ANNOUNCED.match(body):
            announced[prefix] = line
            continue
        before = announced.pop(prefix, None)
        if _RAISED.match(body) and (before is not None or not _NUMBER.match(body)):
            yield f"{before} {body}"[:_MAX_LINE] if before else line
        elif _LOGGED.search(body):
            yield line


def split_prefix(line: str) -> tuple[str, str]:
    """('[default3]:', 'KeyError: 3') of '[default3]:KeyError: 3'."""
    found = _PREFIX.match(line)
    return (found[1].rstrip(), found[2]) if found is not None else ("", line)


def ended_thread(announced: str) -> str:
    """'feed' of 'Exception in thread feed:'; '' of what was no thread's end. 'Thread-3 (run)' → 'Thread-3'."""
    found = _THREAD.match(announced)
    return found[1] if found is not None else ""
