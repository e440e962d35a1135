"""The tracebacks in a log: which rank raised what, where, and whether it can only follow from a hang's end.

Of a chain of exceptions the first is kept: what came while it was handled followed from it. Ranks that share a file
write between each other's lines, so what stands before 'Traceback' (a rank, a date and a host) tells whose the next
lines are.

Example: '[rank2]: Traceback (most recent call last):', '[rank2]:   File "/job/model.py", line 9, in pad', …,
'[rank2]: ValueError: ragged' → rank 2, 'ValueError: ragged', the frames innermost first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from hangdoc.capture.logs.lines import Line, time_of
from hangdoc.capture.logs.sift import Marker
from hangdoc.model.logged import Place, Raised
from hangdoc.model.process import Frame
from hangdoc.model.told_errors import TRACEBACK

_FATAL = "Fatal Python error: "
MARKERS = (Marker(TRACEBACK.encode(), before=2, after=120), Marker(_FATAL.encode(), after=70))

_NATIVE_FRAME = re.compile(r'File "(?P<file>[^"\n]{1,1000})", line (?P<line>\d{1,7}) in (?P<function>\S{1,300})')
_FRAME = re.compile(r'File "(?P<file>[^"\n]{1,1000})", line (?P<line>\d{1,7}), in (?P<function>\S{1,300})')
_CHAIN = ("During handling of the above exception", "The above exception was the direct cause")
_ERROR = re.compile(r"[A-Za-z_][\w.]{0,200}(?::|$)")
_FOLLOWS = re.compile(
    # torch's words for a communicator that the watchdog aborted, and for peers that are gone; the launcher's own
    # errors.
    r"DistBackendError|DistNetworkError|DistStoreError|ChildFailedError|Process(?:Exited|Raised)Exception|SignalException"
    r"|communicator was aborted|NCCL communicator|ncclUniqueId|closed by peer"
    r"|Detected mismatch between collectives|monitoredBarrier|third_party/gloo|\bgloo/|Socket Timeout"
    # What a buffer that an aborted call never filled makes of later code (torch 2.3 to 2.11).
    r"|has inconsistent \d+ params|Tried to allocate more than 1EB|UnpicklingError"
    r"|KeyboardInterrupt|SystemExit"
)
_FOLLOWS_IN_TORCH = re.compile(r"Connection reset|Broken pipe|Timed out|timed out|time-?out", re.IGNORECASE)
"""The same, if torch.distributed raised it: any other pipe may be reset for reasons of its own."""
_DISTRIBUTED = "torch/distributed/"
_CHILD = re.compile(r"-- Process (\d{1,6}) terminated with the following error:")
"""What mp.spawn prints before a child's traceback; its number is the rank, by the function's first argument."""
_MOST_FRAMES, _MOST_TEXT = 64, 400
_LONGEST_WAY, _MOST_OPEN = 2_000, 64
"""Lines from the first of a traceback to its last, and how many are followed at a time; judgement."""
_LONGEST_PREFIX = 300
"""Characters before 'Traceback': more are no date, host or rank."""


@dataclass(slots=True)
class _Open:
    """A traceback whose last line has not come yet."""

    line: Line
    prefix: re.Pattern[str]
    frames: list[Frame] = field(default_factory=list)
    first: tuple[str, list[Frame]] | None = None
    chained: bool = False
    fatal: bool = False
    """faulthandler's: the innermost frame comes first, and nothing after the frames."""

    @property
    def stack(self) -> tuple[Frame, ...]:
        """Innermost first. The first traceback of a chain ends where its exception was caught: what had called that is
        in the last one."""
        first = self.first[1] if self.first is not None else self.frames
        if self.fatal:
            return tuple(self.frames)
        at = next((i for i, f in enumerate(self.frames) if first and f.function == first[0].function), None)
        outer = self.frames[:at] if at is not None and self.frames is not first else []
        return tuple(reversed([*outer, *first]))


def raised_in(lines: Sequence[Line], year: int, rank_of: Callable[[Line], int | None]) -> Iterator[Raised]:
    """The tracebacks in ``lines``, by the place where each begins. ``rank_of``: who wrote a line that does not say
    it."""
    begun: list[_Open] = []
    """The newest last."""
    child: int | None = None
    found: list[tuple[_Open, str, float]] = []
    before_it: Line | None = None
    """The last line before the first of those that are open: a program's own log line often has the time."""
    for line in lines:
        while begun and (begun[0].line.file != line.file or line.number - begun[0].line.number >= _LONGEST_WAY):
            begun.pop(0)
        del begun[:-_MOST_OPEN]
        spawned = _CHILD.search(line.text) if "-- Process " in line.text else None
        if spawned is not None:
            child, begun = int(spawned[1]), []
            continue
        fatal = line.text.find(_FATAL)
        if 0 <= fatal <= _LONGEST_PREFIX:
            opened = _Open(line, _alike(line.text[:fatal]), fatal=True)
            begun = [*(each for each in begun if each.prefix.pattern != opened.prefix.pattern), opened]
            found.append((opened, line.text[fatal : fatal + _MOST_TEXT], time_of(line.text, year)))
            continue
        here = line.text.find(TRACEBACK)
        if 0 <= here <= _LONGEST_PREFIX:
            prefix = _alike(line.text[:here])
            before = next((each for each in begun if each.chained and each.prefix.pattern == prefix.pattern), None)
            if before is not None:
                before.chained, before.frames = False, []
                continue
            begun = [each for each in begun if each.prefix.pattern != prefix.pattern]
            begun.append(_Open(line if child is None else replace(line, rank=child), prefix))
            child = None
            continue
        if not begun:
            before_it = line
            continue
        own = next((each for each in begun if (m := each.prefix.match(line.text)) and m.end() <= len(line.text)), None)
        if own is None:
            continue
        matched = own.prefix.match(line.text)
        body = line.text[matched.end() if matched else 0 :]
        if own.fatal:
            native = _NATIVE_FRAME.search(body)
            if native is not None and len(own.frames) < _MOST_FRAMES:
                own.frames.append(Frame(native["file"], int(native["line"]), native["function"]))
            elif own.frames:
                begun.remove(own)
            continue
        frame = _FRAME.search(body)
        if frame is not None and body.lstrip().startswith("File "):
            if len(own.frames) < _MOST_FRAMES:
                own.frames.append(Frame(frame["file"], int(frame["line"]), frame["function"]))
        elif body.startswith(_CHAIN):
            own.chained = True
        elif own.first is None and own.frames and not own.chained and _ERROR.match(body):
            own.first = (body[:_MOST_TEXT], own.frames)
            found.append((own, body[:_MOST_TEXT], _time(own.line, line, before_it, year)))
    for own, error, at in sorted(found, key=lambda each: (each[0].line.file, each[0].line.number)):
        line = own.line
        rank = line.rank if line.rank is not None else rank_of(line)
        frames = own.stack
        place = Place(line.file, line.number, "traceback")
        distributed = any(_DISTRIBUTED in frame.file for frame in frames)
        aborted = own.fatal and "Aborted" in error
        follows = aborted or bool(_FOLLOWS.search(error)) or (distributed and bool(_FOLLOWS_IN_TORCH.search(error)))
        yield Raised(place, rank, error, frames, follows, at)


def _time(begun: Line, ended: Line, before: Line | None, year: int) -> float:
    """When a traceback was printed: by its own lines, else by the one before it."""
    near = before if before is not None and before.file == begun.file and begun.number - before.number < 3 else None
    times = (time_of(each.text, year) for each in (ended, begun, near) if each is not None)
    return next((at for at in times if at), 0.0)


def _alike(prefix: str) -> re.Pattern[str]:
    """What matches the prefix with any number in it: dates and times go on while a traceback is printed."""
    ranked = re.search(r"\[rank\d+\]:", prefix)
    kept = prefix[ranked.start() : ranked.end()] if ranked else ""
    free = re.sub(r"\\?\d+", r"\\d+", re.escape(prefix[: ranked.start()] if ranked else prefix))
    return re.compile(free + re.escape(kept) + (" ?" if kept or not prefix else ""))
