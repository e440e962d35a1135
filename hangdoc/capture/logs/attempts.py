"""Leaves only the last attempt of a job that was restarted, or run again into the same file.

A line that says that torchrun starts its workers anew ends an attempt in its file. torchrun's folders are numbered, and
the highest of a run counts. Without either, a rank whose overdue call has a lower number than one before it has begun
anew.

Example: 'attempt_0/1/stderr.log' beside 'attempt_1/1/stderr.log' is left out, and so is all of the console before
'will restart worker group'.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from hangdoc.capture.logs.lines import Line, time_of

_FOLDER = re.compile(r"^(?P<run>.*?)attempt_(?P<attempt>\d{1,6})/")
_RESTART = re.compile(r"will restart worker group|\brestart_count=[1-9]\d{0,5}\b")
_NUMBER = re.compile(r"WorkNCCL\(SeqNum=(\d{1,18}),")
_TOGETHER = 60.0
"""Seconds within which ranks of one attempt tell of one hang; judgement."""
_DIES = "taking the entire process down"


def last(files: Mapping[str, list[Line]], year: int, rank_of: Callable[[Line], int | None]) -> tuple[list[Line], int]:
    """The lines of the last attempt of all ``files``, in their order, and how many attempts came before it."""
    folders = {path: found for path in files if (found := _FOLDER.search(path)) is not None}
    highest: dict[str, int] = {}
    for found in folders.values():
        highest[found["run"]] = max(highest.get(found["run"], 0), int(found["attempt"]))
    earlier = max(highest.values(), default=0)
    begins = 0.0
    kept: list[Line] = []
    for path, lines in files.items():
        found = folders.get(path)
        if found is not None:
            if int(found["attempt"]) == highest[found["run"]]:
                kept += lines
            continue
        start, count = _start(lines, year, rank_of)
        earlier = max(earlier, count)
        kept += lines[start:]
        if start:
            begins = max(begins, time_of(lines[start - 1].text, year))
    if begins:
        # What another file has from before the restart is of the attempt before, too.
        kept = [line for line in kept if not 0 < time_of(line.text, year) < begins - 1]
    return kept, earlier


def _start(lines: list[Line], year: int, rank_of: Callable[[Line], int | None]) -> tuple[int, int]:
    """The place of the last attempt's first line, and how many attempts are before it."""
    start = count = 0
    before = -1
    for place, line in enumerate(lines):
        if "restart" in line.text and _RESTART.search(line.text):
            # torchrun says it twice: that it will, and the new count.
            count += place - before > 40 or before < 0
            start, before = place + 1, place
    if start:
        return start, count
    return _fallen(lines, year, rank_of)


def _fallen(lines: list[Line], year: int, rank_of: Callable[[Line], int | None]) -> tuple[int, int]:
    """The same where nothing says that there was a restart: the first call that fell, and what was written with it."""
    died: dict[int | None, int] = {}
    number: dict[int | None, int] = {}
    start = count = 0
    for place, line in enumerate(lines):
        rank = rank_of(line)
        if _DIES in line.text:
            died[rank] = place
        found = _NUMBER.search(line.text) if "WorkNCCL(" in line.text else None
        if found is None:
            continue
        if rank in died and rank is not None and int(found[1]) < number.get(rank, -1):
            start, count = _back(lines, year, place, max(died.values())), count + 1
            died, number = {}, {}
        number[rank] = int(found[1])
    return start, count


def _back(lines: list[Line], year: int, place: int, last_death: int) -> int:
    """The first of the lines before ``place`` that were written within a minute of it, behind the last death."""
    at = time_of(lines[place].text, year)
    start = place
    while start - 1 > last_death and at:
        before = time_of(lines[start - 1].text, year)
        if before and abs(at - before) > _TOGETHER:
            break
        start -= 1
    return start
