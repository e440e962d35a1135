"""A line on a terminal's stderr that says what takes so long; gone at the end. Elsewhere nothing is written."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PATIENCE = 1.0
"""Seconds before the line shows: what is done sooner needs none."""
_REDRAW = 0.25
_BYTES = 1 << 20
"""A count from here on is one of bytes: nobody has so many files."""


class Line:
    """What the line says; ``text`` may be changed at any time."""

    def __init__(self, text: str) -> None:
        self.text = text

    def reading(self) -> Callable[[int, int], None]:
        """What puts 'reading: 1,200 of 4,096 files', or of large numbers 'reading: 210 of 1,000 MB', into the line."""

        def show(done: int, count: int) -> None:
            if count >= _BYTES:
                self.text = f"reading: {done >> 20:,} of {count >> 20:,} MB"
            else:
                self.text = f"reading: {done:,} of {count:,} files"

        return show


@contextmanager
def working(text: str) -> Iterator[Line]:
    """Say what is being done, if it takes longer than a second: 'hangdoc: diagnosing … 3 s'."""
    line = Line(text)
    if not _is_terminal():
        yield line
        return
    done = threading.Event()
    drawer = threading.Thread(target=_draw, args=(line, done), name="hangdoc-progress", daemon=True)
    try:
        drawer.start()
    except RuntimeError:  # no more threads
        yield line
        return
    try:
        yield line
    finally:
        done.set()
        drawer.join(2.0)


def columns() -> int | None:
    """Cells of a line where stdout is a terminal; None where it is none, and lines may have any length."""
    try:
        return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    except (OSError, ValueError, AttributeError):
        return None


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (ValueError, AttributeError):
        return False


def _draw(line: Line, done: threading.Event) -> None:
    start = time.monotonic()
    if done.wait(_PATIENCE):
        return
    width = 0
    try:
        while True:
            said = f"hangdoc: {line.text} … {time.monotonic() - start:.0f} s"
            said = said[: max(10, shutil.get_terminal_size().columns - 1)]
            sys.stderr.write(f"\r{said.ljust(width)}")
            sys.stderr.flush()
            width = max(width, len(said))
            if done.wait(_REDRAW):
                break
        sys.stderr.write(f"\r{' ' * width}\r")
        sys.stderr.flush()
    except (OSError, ValueError, UnicodeError):
        pass  # the terminal is gone, or knows no '…'
