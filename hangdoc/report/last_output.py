"""What the culprits wrote last, below a report: only of ranks that write to files of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.snapshot import JobSnapshot
from hangdoc.report.behavior_rows import label_ranks
from hangdoc.report.layout import Layout, Piece, Row
from hangdoc.report.terminal import shown_by

_MOST_LINES = 3
_MOST_SETS = 4
"""Of lines of each rank, and of ranks: the whole tail is on the page and in the snapshot. Judgement."""


def last_output_rows(diagnosis: Diagnosis, job: JobSnapshot) -> Iterator[Row]:
    """'rank 2 wrote', and its last lines. Culprits that wrote the same share them."""
    culprits = frozenset(diagnosis.culprits)
    found: dict[tuple[str, ...], list[int]] = {}
    for rank in job.ranks:
        if rank.rank in culprits and rank.log is not None:
            lines = tuple(line for line in rank.log.lines if line.strip())[-_MOST_LINES:]
            if lines:
                found.setdefault(lines, []).append(rank.rank)
    for lines, ranks in list(found.items())[:_MOST_SETS]:
        for number, line in enumerate(lines):
            yield Row("" if number else f"{label_ranks(tuple(ranks))} wrote", (Piece(line),))


def last_output_for(stream: TextIO, diagnosis: Diagnosis, job: JobSnapshot, *, color: str = "auto") -> str:
    """The rows as ``stream`` can show them; '' where there are none."""
    rows = list(last_output_rows(diagnosis, job))
    shown = shown_by(stream, None, color)
    layout = Layout(width=max(40, min(200, shown.width)), color=shown.color, unicode=shown.unicode)
    layout.rows(rows)
    return "\n" + layout.finish() if rows else ""
