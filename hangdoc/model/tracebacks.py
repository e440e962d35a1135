"""The tracebacks in a job's output: what ended a thread or a child, or was caught and logged.

Example: 'Exception in thread feed:', 'Traceback (most recent call last):', '  File "/job/load.py", line 9, in pump',
…, 'KeyError: 3' → the frames, innermost first, under 'Exception in thread feed:', with the error 'KeyError: 3'.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from hangdoc.model.process import Frame
from hangdoc.model.snapshot import Traceback
from hangdoc.model.told_errors import ANNOUNCED, TRACEBACK, split_prefix

_FRAME = re.compile(r' {1,8}File "([^"\n]{1,400})", line (\d{1,7}), in (\S{1,200})$')
_MOST_FRAMES = 60
_MOST = 8
"""Of one file, the last ones: more of them are of a program that raises by the minute. Judgement."""
_MAX_LINE = 400
_MAX_ERROR = 200


@dataclass(slots=True)
class _Begun:
    """A traceback whose last line has not come yet."""

    announced: str
    frames: list[Frame] = field(default_factory=list)
    told: bool = False


def tracebacks_in(lines: Iterable[str], rank: int | None) -> tuple[Traceback, ...]:
    """The last tracebacks of an output, in their order. ``rank``: whose own it is; None for one that ranks share."""
    return tuple(_tracebacks(lines, rank))[-_MOST:]


def _tracebacks(lines: Iterable[str], rank: int | None) -> Iterator[Traceback]:
    begun: dict[str, _Begun] = {}
    """By prefix: ranks that share a file write between each other's lines."""
    for line in (each[:_MAX_LINE] for each in lines):
        prefix, body = split_prefix(line)
        if body.startswith(TRACEBACK):
            before = begun.get(prefix)
            begun[prefix] = before if before is not None and not before.told else _Begun("")
            begun[prefix].told = True
            begun[prefix].frames.clear()  # of an error while another one was handled, the last one counts
        elif ANNOUNCED.match(body):
            begun[prefix] = _Begun(body)
        elif prefix not in begun or not body:
            continue
        elif found := _FRAME.match(body):
            frames = begun[prefix].frames
            frames.append(Frame(found[1], int(found[2]), found[3]))
            del frames[:-_MOST_FRAMES]
        elif not body.startswith((" ", "\t")) and begun[prefix].told:
            ended = begun.pop(prefix)
            if ended.frames:
                yield Traceback(ended.announced, tuple(reversed(ended.frames)), body[:_MAX_ERROR], rank)
