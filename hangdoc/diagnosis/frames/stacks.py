"""A stack as the diagnosis reads it: the user's part of it, and the call site that it identifies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile

from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.names import names
from hangdoc.model.process import Frame, Stack

Site = tuple[tuple[str, int, str], ...]
"""What identifies a call site: (file, line, function) of each user frame, innermost first; of ``call_site`` last
('', 0, the library's functions on the way)."""
Path = tuple[tuple[str, str, int], ...]
"""(file, function, line) of the user's frames, the outermost first."""


def user_stack(stack: Stack) -> Stack:
    """The user frames, innermost first."""
    return tuple(f for f in stack if not is_library(f))


def task_of(stack: Stack) -> Frame | None:
    """The outermost function of the user's that an event loop runs (asyncio/events.py, Python 3.8 to 3.14)."""
    for index, frame in enumerate(stack):
        if frame.file.endswith("/asyncio/events.py") and plain(frame.function) == "_run":
            return next(reversed(user_stack(stack[:index])), None)
    return None


def site_of(stack: Stack) -> Site:
    """What identifies a call site: the user frames, or the innermost library frames where there are none
    (backward on another thread, finalizers)."""
    frames = user_stack(stack) or stack[:4]
    # torch records plain code names, py-spy qualified ones.
    return tuple((f.file, f.line, plain(f.function)) for f in frames)


def path_of(stack: Stack) -> Path:
    """The user's lines on the way to the call."""
    return tuple((f.file, plain(f.function), f.line) for f in reversed(user_stack(stack)))


def call_site(stack: Stack) -> Site:
    """``site_of``, and last the library's functions on the way from the user's line to the call; their lines may
    differ between ranks that do the same, and so may code without a file."""
    below = list(takewhile(is_library, stack))
    site = site_of(stack)
    if not below or len(below) == len(stack):
        return site
    way = (plain(f.function) for f in reversed(below) if not f.file.startswith("<"))
    return (*site, ("", 0, " ".join(way)))


def lines_of(site: Site) -> Site:
    """The user's part of a call site: the first call of a compiled function takes another way than the next."""
    return site[:-1] if site and not site[-1][0] else site


def is_in(frame: Frame, files: str, functions: str) -> bool:
    """True if the frame is in one of these functions of these files; both are entries of the table of names."""
    return frame.file.endswith(names(files)) and plain(frame.function) in names(functions)


def same_function(a: Frame, b: Frame) -> bool:
    """True if both are in one function."""
    return a.file == b.file and plain(a.function) == plain(b.function)


def same_place(a: Frame, b: Frame) -> bool:
    """True if both are at one line of one function."""
    return same_function(a, b) and a.line == b.line


def same_line(a: Frame, b: Frame) -> bool:
    """True if both are at one line of one file, as a comprehension and the function around it may be."""
    return (a.file, a.line) == (b.file, b.line)


@dataclass(frozen=True, slots=True)
class Fork:
    """Where two stacks diverge. ``mine`` and ``theirs`` are their frames, outermost first; the first ``common`` of them
    are the same.

    Example: main:3 → fit:7 → save:1 and main:3 → fit:9 have 1 in common and diverge at (fit:7, fit:9).
    """

    mine: Stack
    theirs: Stack
    common: int

    @property
    def frames(self) -> tuple[Frame, Frame] | None:
        """The first frames that differ: mine, theirs. None where one stack ends before it differs from the other."""
        at = self.common
        return (self.mine[at], self.theirs[at]) if at < min(len(self.mine), len(self.theirs)) else None

    @property
    def within_function(self) -> tuple[Frame, Frame] | None:
        """The same, where both are in one function, at different lines."""
        return self.frames if self.frames is not None and same_function(*self.frames) else None


def every_frame(stack: Stack) -> Stack:
    """The stack itself, where ``user_stack`` would leave out the library's frames."""
    return stack


def fork(
    stack: Stack,
    other: Stack,
    *,
    same: Callable[[Frame, Frame], bool] = same_place,
    frames_of: Callable[[Stack], Stack] = user_stack,
) -> Fork:
    """Where two stacks diverge, from the outermost frame on, by those of their frames that ``frames_of`` keeps."""
    ways = [tuple(reversed(frames_of(each))) for each in (stack, other)]
    pairs = zip(*ways, strict=False)
    common = next((i for i, (a, b) in enumerate(pairs) if not same(a, b)), min(map(len, ways)))
    return Fork(ways[0], ways[1], common)
