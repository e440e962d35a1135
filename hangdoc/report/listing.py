"""The jobs of a machine as a table for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from hangdoc.model.summary import JobSummary
from hangdoc.model.wording import fold_ranks, harmless, name_duration

_LONGEST_COMMAND = 72
"""Characters of a command line. Chosen by hand."""
_HEADINGS = ("PID", "LAUNCHER", "RANKS", "STATE", "SINCE", "USER", "COMMAND")


def render(jobs: Sequence[JobSummary], now: float) -> str:
    """One line per job; ``now`` is Unix time. Without jobs one line that says so."""
    if not jobs:
        return "hangdoc sees no distributed job on this machine.\n"
    rows = [_HEADINGS, *(_row(job, now) for job in jobs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS) - 1)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    ]
    return "\n".join(lines) + "\n\nhangdoc attach PID says who holds a job up, where and why.\n"


def _row(job: JobSummary, now: float) -> tuple[str, ...]:
    return (
        str(job.pid),
        harmless(job.launcher),
        _ranks(job),
        _state(job),
        name_duration(now - job.since),
        harmless(job.user),
        _command(job.command),
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


def _command(words: Sequence[str]) -> str:
    shown = [PurePosixPath(word).name if index == 0 else word for index, word in enumerate(words)]
    text = harmless(" ".join(shown))
    return text if len(text) <= _LONGEST_COMMAND else text[: _LONGEST_COMMAND - 1] + "…"
