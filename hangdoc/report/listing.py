"""The jobs of a machine as a table for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from hangdoc.model.summary import JobSummary
from hangdoc.model.wording import fold_ranks, harmless, name_duration
from hangdoc.report.table import lay_out

_LONGEST_COMMAND = 72
"""Characters of a command line where a line may have any length. Chosen by hand."""
_LEAST_COMMAND = 24
"""Characters of a column for commands; where fewer are left, each has a line of its own. Chosen by hand."""
_HEADINGS = ("PID", "LAUNCHER", "RANKS", "STATE", "SINCE", "USER", "COMMAND")
_NARROW = 90
"""Cells of a line below which LAUNCHER and USER, which say the least, are left out. Chosen by hand."""


def render(jobs: Sequence[JobSummary], now: float, width: int | None = None) -> str:
    """One line per job; ``now`` is Unix time. Without jobs one line that says so.

    ``width``: cells of a terminal's line. Where it is narrow, some columns are left out or the command has a line of
    its own; its program and its script are never cut.
    """
    if not jobs:
        return "hangdoc sees no distributed job on this machine.\n"
    left_out = (1, 5) if width is not None and width < _NARROW else ()
    rows = [_HEADINGS, *(_row(job, now) for job in jobs)]
    cells = [[cell for column, cell in enumerate(row[:-1]) if column not in left_out] for row in rows]
    room = _room(cells, width)
    if width is None or room >= _LEAST_COMMAND:
        commands = [rows[0][-1], *(_command(job.command, room) for job in jobs)]
        table = lay_out([[*row, command] for row, command in zip(cells, commands, strict=True)], width)
    else:
        lines = lay_out(cells, None).splitlines()
        commands = [f"  {_command(job.command, width - 2)}" for job in jobs]
        table = "\n".join([lines[0], *(f"{a}\n{b}" for a, b in zip(lines[1:], commands, strict=True))]) + "\n"
    return f"{table}\nhangdoc attach PID says who holds a job up, where and why.\n"


def _room(rows: Sequence[Sequence[str]], width: int | None) -> int:
    """Cells that are left for the commands."""
    if width is None:
        return _LONGEST_COMMAND
    return width - sum(max(len(row[column]) for row in rows) + 2 for column in range(len(rows[0])))


def _row(job: JobSummary, now: float) -> tuple[str, ...]:
    return (
        str(job.pid),
        harmless(job.launcher),
        _ranks(job),
        _state(job),
        name_duration(now - job.since),
        harmless(job.user),
        "",
    )


def _ranks(job: JobSummary) -> str:
    if not job.readable:
        return "?"
    if not job.ranks:
        return "none yet"
    missing = f", {fold_ranks(job.missing)} missing" if job.missing else ""
    return f"{len(job.ranks)} ({fold_ranks(job.ranks)}{missing})"


def _state(job: JobSummary) -> str:
    if not job.readable:
        return "not yours"
    if not job.ranks:
        return "waiting"
    if not job.moving:
        return "still"
    return "moving" if job.moving == len(job.ranks) else f"{job.moving} of {len(job.ranks)} move"


def _command(words: Sequence[str], room: int) -> str:
    """The command line in ``room`` characters. The script is kept whole, and the program where there is room for it.

    Example: 'torchrun --nnodes 2 --nproc-per-node 8 train.py --lr 1' in 24 characters is 'torchrun … train.py --l…'.
    """
    shown = _without_interpreter([PurePosixPath(word).name if index == 0 else word for index, word in enumerate(words)])
    text = harmless(" ".join(shown))
    if len(text) <= room:
        return text
    place = next((number for number, word in enumerate(shown) if number and word.endswith(".py")), None)
    if place is None:
        return _cut(text, max(room, len(shown[0]) + 1 if shown else 0))
    script = PurePosixPath(shown[place]).name
    for kept in (f"{shown[0]}{' … ' if place > 1 else ' '}{script}", f"… {script}", script):
        if len(harmless(kept)) <= room:
            return _cut(harmless(" ".join([kept, *shown[place + 1 :]])), room)
    return harmless(script)


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: max(0, room - 1)].rstrip()}…"


def _without_interpreter(words: list[str]) -> list[str]:
    """['python3', '/opt/bin/torchrun', …] → ['torchrun', …]: of a command that pip installed, its name says enough."""
    if len(words) > 1 and words[0].startswith("python") and words[1].startswith("/") and not words[1].endswith(".py"):
        return [PurePosixPath(words[1]).name, *words[2:]]
    return words
