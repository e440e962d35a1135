"""The lines of logs as a snapshot carries them: those in which its facts stand, for people to read; or all that was
sifted on a host, from which its facts are found again, together with those of other hosts."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from hangdoc.capture.logs.lines import Line, lines_of
from hangdoc.model.logged import LogFile, Logged, LogLine, LogStack, Place
from hangdoc.model.nccl import NcclStatus

MOST_LINES = 3_000
"""In which facts stand. Judgement: nobody reads more."""
_FEWEST = 12
"""Of each file, however many files there are."""
_LONGEST = 2_000
"""Characters of a line for people; torch's longest records have some 3,000, of which the end repeats."""
_MOST_TEXT = 12 << 20
"""Characters of all lines of one host: packed some 2 MB, of the 16 that a host may send."""
_TAIL_SHARE = 4
"""The part of them that may be lines at the ends of files, which only tell what each rank wrote last."""
_WITH_STACK = 40
"""Lines after the first of a traceback or stack that belong to it."""
_VERSIONS = (
    ("NCCL", re.compile(r"\bNCCL version (\d+\.\d+[\w.+-]{0,40})")),
    ("CUDA driver", re.compile(r"\bcudaDriverVersion (\d{4,6})\b")),
    ("torch", re.compile(r"\bPyTorch version: ?(\d+\.\d+[\w.+-]{0,40})")),
)


@dataclass
class ReadFile:
    """One file that was read. ``lines`` has what is of interest, ``tail`` the end of the file."""

    file: LogFile
    lines: list[Line] = field(default_factory=list)
    tail: list[Line] = field(default_factory=list)
    nccl: NcclStatus | None = None
    stacks: list[LogStack] = field(default_factory=list)
    """Those of a JSON document."""


def sifted(read: Sequence[ReadFile]) -> Logged:
    """All lines that were kept of the files, and no facts but the stacks of JSON documents. Where they are too many,
    each file says in ``cut`` what was left out of it."""
    room = _MOST_TEXT // max(1, len(read))
    lines: list[LogLine] = []
    files: list[LogFile] = []
    for each in read:
        known = {line.number for line in each.lines}
        kept = _within([LogLine(each.file.path, line.number, line.text) for line in each.lines], room)
        ends = [LogLine(each.file.path, n.number, n.text, False, True) for n in each.tail if n.number not in known]
        last = _up_to(ends[::-1], room // _TAIL_SHARE)
        missing = len(each.lines) - len(kept)
        cut = f"{missing:,} lines, so that a host does not send too much" if missing else ""
        files.append(replace(each.file, cut="; ".join(filter(None, (each.file.cut, cut)))))
        in_tail = {line.number for line in each.tail}
        lines += (replace(line, end=True) if line.number in in_tail else line for line in kept)
        lines += last
    return Logged(files=tuple(files), lines=tuple(lines), stacks=tuple(s for each in read for s in each.stacks))


def _within(lines: list[LogLine], room: int) -> list[LogLine]:
    """Half of the room for the first, half for the last of the lines."""
    if sum(len(line.text) for line in lines) <= room:
        return lines
    first = _up_to(lines, room // 2)
    return [*first, *_up_to(lines[len(first) :][::-1], room // 2)[::-1]]


def _up_to(lines: list[LogLine], room: int) -> list[LogLine]:
    found = []
    for line in lines:
        room -= len(line.text)
        if room < 0:
            break
        found.append(line)
    return found


def unsifted(logged: Logged, nccl: NcclStatus | None, folder: str) -> list[ReadFile]:
    """What ``sifted`` was made of, its files in ``folder``; '': where they were."""
    below = f"{folder}/" if folder else ""
    by_file: dict[str, list[LogLine]] = defaultdict(list)
    for line in logged.lines:
        by_file[line.file].append(line)
    stacks: dict[str, list[LogStack]] = defaultdict(list)
    for stack in logged.stacks:
        place = replace(stack.place, file=f"{below}{stack.place.file}")
        stacks[stack.place.file].append(replace(stack, place=place))
    found = []
    for number, file in enumerate(logged.files):
        own = by_file[file.path]
        path = f"{below}{file.path}"
        own.sort(key=lambda line: line.number)
        kept = _lines(path, (line for line in own if line.telling))
        tail = _lines(path, (line for line in own if line.end))
        status = nccl if number == 0 else None
        found.append(ReadFile(replace(file, path=path), kept, tail, status, stacks[file.path]))
    return found


def _lines(path: str, lines: Iterable[LogLine]) -> list[Line]:
    return list(lines_of(path, ((line.number, line.text.encode("utf-8", "replace")) for line in lines)))


def telling_lines(logged: Logged, read: Sequence[ReadFile]) -> tuple[LogLine, ...]:
    """The lines in which the facts stand; of more than ``MOST_LINES``, the first and the last of each file."""
    wanted = _places(logged)
    quota = max(_FEWEST, MOST_LINES // max(1, len(wanted)))
    found: list[LogLine] = []
    for each in read:
        numbers = wanted.get(each.file.path)
        if numbers is None or len(found) >= MOST_LINES:
            continue
        own = {line.number: line for line in (*each.lines, *each.tail) if line.number in numbers}
        lines = [own[number] for number in sorted(own)]
        if len(lines) > quota:
            lines = [*lines[: quota // 2], *lines[-(quota // 2) :]]
        found += [LogLine(line.file, line.number, line.text[:_LONGEST]) for line in lines]
    return tuple(found[:MOST_LINES])


def _places(logged: Logged) -> Mapping[str, set[int]]:
    """File → the numbers of the lines in which its facts stand, a stack's frames included."""
    found: dict[str, set[int]] = defaultdict(set)
    for name in (each.name for each in fields(Logged) if each.name not in ("files", "lines")):
        facts = getattr(logged, name)
        for fact in facts if isinstance(facts, tuple) else ():
            place: Place = fact.place
            stack = getattr(fact, "frames", None) or getattr(fact, "stack", ())
            found[place.file].update(range(place.line, place.line + (_WITH_STACK if stack else 1)))
    return found


def versions_in(lines: Iterable[Line]) -> tuple[tuple[str, str], ...]:
    """(what, its version) as the lines say. CUDA's number is written as people do: 12040 → 12.4."""
    found = set()
    for line in lines:
        if "ersion" not in line.text:
            continue
        for what, pattern in _VERSIONS:
            for match in pattern.finditer(line.text):
                number = match[1]
                if what == "CUDA driver":
                    number = f"{int(number) // 1000}.{int(number) % 1000 // 10}"
                found.add((what, number.rstrip(".")))
    return tuple(sorted(found)[:_MOST_VERSIONS])


_MOST_VERSIONS = 20
"""Of all; more are no versions of one job."""
