"""How ranks ended, as torchelastic and Slurm tell it.

torchelastic ends what is left of a host after the first failure: SIGTERM, and SIGKILL half a minute later. Such an end
is ``asked``, and says nothing of the rank. Its "Root Cause" is the first failure that *this host's* agent saw, to a
second.

Example: 'srun: error: nid7: tasks 0-2: Aborted (core dumped)' → ranks 0, 1 and 2 ended by signal 6 on nid7.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hangdoc.capture.logs.lines import Line, time_of
from hangdoc.capture.logs.sift import Marker
from hangdoc.model.logged import Ended, Place

MARKERS = (
    Marker(b"exitcode", before=6, after=2),
    Marker(b"elastic", after=12),  # what the agent says, and the result of a rendezvous below it
    Marker(b"srun: error"),
    Marker(b"CANCELLED"),
)

_FAILED = re.compile(r"failed \(exitcode: (-?\d{1,4})\) local_rank: (\d{1,5}) \(pid: (\d{1,9})\)")
_FIELD = re.compile(r"^\s*(time|host|rank|exitcode)\s*: (.{1,200})$")
_RANK = re.compile(r"(\d{1,6}) \(local_rank: (\d{1,5})\)")
_EXIT = re.compile(r"(-?\d{1,4}) \(pid: (\d{1,9})\)")
_CLOSING = re.compile(
    r"Sending process (\d{1,9}) closing signal|shutdown process (\d{1,9}) via .{0,40}, forcefully exiting"
)
_TASKS = re.compile(
    r"srun: error: (?P<host>[\w.-]{1,100}): tasks? (?P<tasks>\d{1,6}(?:[,-]\d{1,6}){0,400}): "
    r"(?P<how>[A-Z][\w ()]{1,80})"
)
_SIGNALS = {
    "Aborted": signal.SIGABRT,
    "Killed": signal.SIGKILL,
    "Terminated": signal.SIGTERM,
    "Segmentation fault": signal.SIGSEGV,
    "Bus error": signal.SIGBUS,
    "Floating point exception": signal.SIGFPE,
    "Illegal instruction": signal.SIGILL,
    "Out Of Memory": signal.SIGKILL,
}
_MOST_TASKS = 1 << 15
"""In all lines together."""


def ends(lines: Sequence[Line], year: int) -> Iterator[Ended]:
    """All ends, each rank's once where torchelastic's summary tells it again."""
    asked: set[int] = set()
    found: dict[tuple[object, ...], Ended] = {}
    root = False
    fields: dict[str, str] = {}
    cancelled = False
    room = _MOST_TASKS
    for line in lines:
        text = line.body if line.label else line.text
        if "Root Cause (first" in text:
            root = True
        if " process " in text:
            asked |= {int(each) for groups in _CLOSING.findall(text) for each in groups if each}
        cancelled = cancelled or "CANCELLED" in text
        failed = _FAILED.search(text) if "(exitcode" in text else None
        if failed is not None:
            place = Place(line.file, line.number, "torchelastic")
            end = _with_status(
                Ended(place, None, int(failed[2]), int(failed[3]), at=time_of(text, year)), int(failed[1])
            )
            found.setdefault(("pid", end.pid), end)
            root, fields = False, {}
        named = _FIELD.match(text) if " : " in text else None
        if named is not None:
            fields[named[1]] = named[2]
            if named[1] == "exitcode":
                told = _of_summary(line, fields, year, first=root)
                if told is not None:
                    found[("pid", told.pid)] = told
                fields, root = {}, False
        for tasks in _TASKS.finditer(text) if "srun: error" in text else ():
            for end in _of_tasks(line, tasks, room, asked=cancelled):
                found.setdefault(("task", end.rank), end)
                room -= 1
    yield from (replace(end, asked=True) if end.pid in asked and end.signal else end for end in found.values())


def _of_summary(line: Line, fields: dict[str, str], year: int, *, first: bool) -> Ended | None:
    rank, code = _RANK.match(fields.get("rank", "")), _EXIT.match(fields.get("exitcode", ""))
    if rank is None or code is None:
        return None
    place = Place(line.file, line.number, "torchelastic")
    at = time_of(fields.get("time", ""), year)
    end = Ended(place, int(rank[1]), int(rank[2]), int(code[2]), fields.get("host", ""), first=first, at=at)
    return _with_status(end, int(code[1]))


def _with_status(end: Ended, code: int) -> Ended:
    return replace(end, signal=-code) if code < 0 else replace(end, status=code)


def _of_tasks(line: Line, found: re.Match[str], most: int, *, asked: bool) -> Iterator[Ended]:
    """Slurm's tasks; after a step was cancelled, a kill is Slurm's own."""
    place = Place(line.file, line.number, "Slurm")
    how = next((number for word, number in _SIGNALS.items() if found["how"].startswith(word)), None)
    status = re.match(r"Exited with exit code (\d{1,3})", found["how"])
    count = 0
    for part in found["tasks"].split(","):
        low, _, high = part.partition("-")
        if high and not high.isdecimal():
            continue
        for task in range(int(low), int(high or low) + 1):
            count += 1
            if count > most:
                return
            killed = how in (signal.SIGKILL, signal.SIGTERM) and not found["how"].startswith("Out Of Memory")
            yield Ended(
                place, task, host=found["host"], status=int(status[1]) if status else None,
                signal=int(how) if how is not None else None, asked=asked and killed,
            )  # fmt: skip
