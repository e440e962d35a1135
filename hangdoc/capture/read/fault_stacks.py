"""Where a process was when its own native code ended it, as Python's faulthandler wrote it down in that moment.

CPython 3.10 to 3.14 (Python/traceback.c):

    Fatal Python error: Aborted

    Thread 0x00007f76b1d1f6c0 (most recent call first):
      File "/job/train.py", line 4 in prefetch

    Current thread 0x00007f76b29bbb80 [python] (most recent call first):
      File "/job/train.py", line 8 in step
      ...
"""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from hangdoc.capture.safe.foreign import read_plain
from hangdoc.capture.safe.text import clean
from hangdoc.model.frames import own_frames
from hangdoc.model.process import Frame, Stack

_NAMES: dict[int, str] = {
    signal.SIGABRT: "Aborted",
    signal.SIGSEGV: "Segmentation fault",
    signal.SIGBUS: "Bus error",
    signal.SIGFPE: "Floating",
    signal.SIGILL: "Illegal instruction",
}
"""Signal → how faulthandler's name for it begins; one is spelled 'Floating point' or 'Floating-point exception'."""
_MOST_BYTES = 16 << 20
"""CPython stops after 100 threads of 100 frames, with 500 characters of each name; all as escapes it would be more."""
_BEGIN = "Fatal Python error: "
_THREAD = re.compile(r"(Current thread|Thread) 0x[0-9a-f]+\b.*\(most recent call first\):$")
_FRAME = re.compile(r'  File "(.*)", line (\d{1,9}) in (.*)$')
_ESCAPE = re.compile(r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")
_LEFT_OUT = "..."
"""In the place of further threads."""


def read_fault(path: Path, number: int) -> Stack:
    """Where the thread was that signal ``number`` met, or the main thread where that one runs no Python; innermost
    first. () where the file does not tell: it was never written, or is not ours.
    """
    try:
        data = read_plain(path, _MOST_BYTES, owners={os.geteuid()})
    except (OSError, ValueError):
        return ()
    return fault_stack(data.decode("ascii", "backslashreplace").splitlines(), number)


def fault_stack(lines: list[str], number: int) -> Stack:
    """The same of the last report in ``lines``; () if that is of another signal."""
    begins = [place for place, line in enumerate(lines) if line.startswith(_BEGIN)]
    name = _NAMES.get(number)
    if not begins or name is None or not lines[begins[-1]].removeprefix(_BEGIN).startswith(name):
        return ()
    threads: list[tuple[bool, list[Frame]]] = []
    whole = True
    for line in lines[begins[-1] + 1 :]:
        if (thread := _THREAD.match(line)) is not None:
            threads.append((thread[1] == "Current thread", []))
        elif (frame := _FRAME.match(line)) is not None and threads:
            threads[-1][1].append(Frame(_name(frame[1]), int(frame[2]), _name(frame[3])))
        elif line == _LEFT_OUT:
            whole = False
    met = next((frames for current, frames in threads if current and frames), None)
    # A thread is put before those that there were: the main thread is the last one.
    main = threads[-1][1] if threads and whole else []
    return own_frames(tuple(met if met is not None else main))


def _name(text: str) -> str:
    """A name whose characters beyond ASCII faulthandler has escaped."""
    return clean(_ESCAPE.sub(lambda found: chr(min(int(found[1] or found[2] or found[3], 16), 0x10FFFF)), text))
