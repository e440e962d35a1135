"""A stack as the diagnosis reads it: the user's part of it, and the call site that it identifies."""

from __future__ import annotations

from itertools import takewhile

from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.library import library
from hangdoc.model.process import Stack

Site = tuple[tuple[str, int, str], ...]
"""What identifies a call site: (file, line, function) of each user frame, innermost first; of ``call_site`` last
('', 0, the library's functions on the way)."""


def user_stack(stack: Stack) -> Stack:
    """The user frames, innermost first."""
    return tuple(f for f in stack if not library(f.file))


def site_of(stack: Stack) -> Site:
    """What identifies a call site: the user frames, or the innermost library frames where there are none
    (backward on another thread, finalizers)."""
    frames = user_stack(stack) or stack[:4]
    # torch records plain code names, py-spy qualified ones.
    return tuple((f.file, f.line, plain(f.function)) for f in frames)


def call_site(stack: Stack) -> Site:
    """``site_of``, and last the library's functions on the way from the user's line to the call; their lines may
    differ between ranks that do the same, and so may code without a file."""
    below = list(takewhile(lambda frame: library(frame.file), stack))
    site = site_of(stack)
    if not below or len(below) == len(stack):
        return site
    way = (plain(f.function) for f in reversed(below) if not f.file.startswith("<"))
    return (*site, ("", 0, " ".join(way)))


def lines_of(site: Site) -> Site:
    """The user's part of a call site: the first call of a compiled function takes another way than the next."""
    return site[:-1] if site and not site[-1][0] else site
