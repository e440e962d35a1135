"""A line of a log without its trappings: who speaks in it, when, and what stands behind all prefixes.

Three kinds of rank are kept apart. ``[rank3]:`` is torch's own word for the *global* rank (2.2 and later). What stands
further out is the launcher's label: torchrun's ``[default3]:`` counts within one host, ``srun -l``'s ``12: `` is a
task. ``[Rank k]`` inside a record is the place within the record's group, which ``watchdog`` reads.

Example: '[default1]:[rank5]:[E…' → label 'default1', rank 5. '[rank0]:[rank4]:…' (torchrun with --role rank) → rank 4.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

_COLOURS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
_QUOTED = re.compile(r"(?:[>|] ?|stderr: |stdout: )+")
_RANK = re.compile(r"\[rank(\d{1,6})\]:")
_LABEL = re.compile(
    r"""
      \[(?P<role>[A-Za-z_][\w.-]{0,40}?)(?P<local>\d{1,5})\]:    # torchrun's tee
    | (?P<task>\d{1,6}):\ ?(?!\d)                               # srun -l
    | \((?P<actor>[A-Za-z_][\w.]{0,60})\ pid=(?P<pid>\d{1,9})(?:,\ ip=(?P<ip>[\w.:]{1,60}))?\)\ ?   # Ray
    """,
    re.VERBOSE,
)
_GLOG = re.compile(r"\b[IWEF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)(\.\d{1,9})?")
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T _](\d\d):(\d\d):(\d\d)([.,]\d{1,9})?")
MAX_TEXT = 16 << 10
FRONT = 1_000
"""Characters before a record in which its own front stands; torch's have some 200."""


@dataclass(frozen=True, slots=True)
class Line:
    """``number`` counts from 1 in ``file``. ``text``: without colours, quotes and what a progress bar wrote before."""

    file: str
    number: int
    text: str
    label: str = ""
    """The launcher's: 'default3', 'task 12', 'pid 835 10.0.0.1'."""
    rank: int | None = None
    """The global rank, where torch says it."""
    body: str = ""
    """``text`` behind the label and torch's rank."""


def lines_of(file: str, kept: Iterable[tuple[int, bytes]]) -> Iterator[Line]:
    """The lines in ``kept``, (number, bytes) each."""
    for number, raw in kept:
        text = _COLOURS.sub("", raw[: 2 * MAX_TEXT].decode("utf-8", "replace")).rstrip("\r")
        text = text[text.rfind("\r") + 1 :][:MAX_TEXT]
        quoted = _QUOTED.match(text)
        yield _line(file, number, text[quoted.end() :] if quoted else text)


def _line(file: str, number: int, text: str) -> Line:
    label, start = "", 0
    found = _LABEL.match(text)
    if found is not None and not (found["role"] == "rank" and _RANK.match(text) and not _RANK.match(text, found.end())):
        label, start = _name_of(found), found.end()
    rank = None
    while ranked := _RANK.match(text, start + (text[start : start + 1] == " ")):
        rank, start = int(ranked[1]), ranked.end()
    if rank is None:
        # Behind a date and a host, or a program's own prefix.
        ranked = _RANK.search(text, start, start + 200)
        if ranked is not None:
            rank, start = int(ranked[1]), ranked.end()
    return Line(file, number, text, label, rank, text[start:])


def _name_of(found: re.Match[str]) -> str:
    if found["task"]:
        return f"task {int(found['task'])}"
    if found["actor"]:
        return " ".join(filter(None, ("pid", found["pid"], found["ip"])))
    return f"{found['role']}{int(found['local'])}"


def rank_before(text: str, at: int) -> int | None:
    """The global rank of the nearest ``[rankN]:`` before that place: two records may share a line."""
    found = None
    for found in _RANK.finditer(text, max(0, at - FRONT), at):  # noqa: B007  (the last one)
        pass
    return int(found[1]) if found is not None else None


def time_of(text: str, year: int, at: int | None = None) -> float:
    """Unix seconds of the last time that ``text`` tells before ``at`` (torch's own, else a date in front); 0.0: none.

    ``year`` is what torch's own times leave out. Example: 'E617 13:13:23.5' is the 17th of June.
    """
    end = len(text) if at is None else at
    found = None
    for found in _GLOG.finditer(text, max(0, end - FRONT) if at is not None else 0, end):  # noqa: B007
        pass
    if found is not None:
        return _seconds((year, int(found[1]), int(found[2]), *map(int, found.group(3, 4, 5))), found[6])
    dated = _ISO.search(text, 0, end)
    return _seconds(tuple(map(int, dated.group(1, 2, 3, 4, 5, 6))), dated[7]) if dated is not None else 0.0


def year_in(lines: Sequence[Line]) -> int | None:
    """The year of the last full date."""
    dated = (found for line in reversed(lines) if (found := _ISO.search(line.text)) is not None)
    return next((int(found[1]) for found in dated), None)


def year_of(modified: float) -> int:
    """That of a file's time."""
    return datetime.fromtimestamp(modified, timezone.utc).year


def _seconds(parts: tuple[int, ...], fraction: str | None) -> float:
    try:
        datetime(*parts)  # type: ignore[arg-type]  # only to refuse the 31st of February
        return timegm((*parts, 0, 0, 0)) + float((fraction or ".0").replace(",", "."))
    except (ValueError, TypeError):
        return 0.0
