"""What a report with all evidence shows of the snapshot itself: the lines of the logs, versions, the program's size."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import TextIO

from hangdoc.model.snapshot import JobSnapshot
from hangdoc.report.layout import Layout, Piece, Row
from hangdoc.report.statistics import size
from hangdoc.report.terminal import shown_by

_MOST_LINES = 200
"""Judgement: the file has more, and nobody reads them here."""
_LONGEST = 240
"""Characters of a line."""


def log_line_rows(job: JobSnapshot) -> Iterator[Row]:
    """'versions', 'source', then 'train.log:17' and what stands there; of too many lines the first and the last."""
    if job.versions:
        yield Row("versions", (Piece(", ".join(f"{what} {version}" for what, version in job.versions)),))
    if job.modules:
        lines_kept = sum(module.text.count("\n") + 1 for module in job.modules)
        packed = len(gzip.compress("".join(module.text for module in job.modules).encode("utf-8", "replace"), 3))
        files = "1 file" if len(job.modules) == 1 else f"{len(job.modules):,} files"
        whole = f"{files} of the program whole, {lines_kept:,} lines, {size(packed)} of the snapshot"
        yield Row("source", (Piece(whole),))
    lines = job.logged.lines if job.logged is not None else ()
    cut = len(lines) - _MOST_LINES
    for number, line in enumerate(lines):
        if cut > 0 and _MOST_LINES // 2 <= number < _MOST_LINES // 2 + cut:
            if number == _MOST_LINES // 2:
                yield Row("", (Piece(f"… {cut:,} more lines, which the snapshot has", "dim"),))
            continue
        text = line.text if len(line.text) <= _LONGEST else f"{line.text[:_LONGEST]}…"
        yield Row("logs" if number == 0 else "", (Piece(f"{line.file}:{line.number}: {text}"),))


def log_lines_for(stream: TextIO, job: JobSnapshot, *, color: str = "auto") -> str:
    """The rows as ``stream`` can show them; '' where there are none."""
    rows = list(log_line_rows(job))
    shown = shown_by(stream, None, color)
    layout = Layout(width=max(40, min(200, shown.width)), color=shown.color, unicode=shown.unicode)
    layout.rows(rows)
    return "\n" + layout.finish() if rows else ""
