"""The diagnosis for a person at a terminal: the answer first, then who is where, why, and what to do."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import NamedTuple, TextIO

from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.wording import name_duration
from hangdoc.report.behavior_rows import MAX_ROWS, FileNames, behavior_rows, process_rows, stack_rows
from hangdoc.report.code import lay_out as lay_out_code
from hangdoc.report.github import inert
from hangdoc.report.layout import Layout, Piece, Row
from hangdoc.report.reason_rows import confidence_row, evidence_rows, folds, next_row, reason_rows

COLORS = ("auto", "always", "never")
_MOST_BEHAVIORS = 200
"""Rows of each kind in a verbose report."""

_MARKS = {
    "hang": ("✖", "bold red"),
    "crashed": ("✖", "bold red"),
    "slow": ("◔", "bold yellow"),
    "healthy": ("✔", "bold green"),
    "blind": ("?", "bold yellow"),
}


def render(
    diagnosis: Diagnosis,
    *,
    width: int = 100,
    color: bool = False,
    unicode: bool = True,
    host: str = "",
    verbose: bool = False,
) -> str:
    """The report as lines of at most ``width`` cells (40 to 200), each ended by a newline; of several jobs in a folder
    of dumps one after the other.

    ``unicode`` False gives pure ASCII. Text that comes from the job is escaped and never interpreted. ``host``: this
    machine's name, where places may link to their files. ``verbose``: with all evidence and stacks.
    """
    parts = [
        _report(each, width=max(40, min(200, width)), color=color, unicode=unicode, host=host, verbose=verbose)
        for each in (diagnosis, *diagnosis.others)
    ]
    if diagnosis.others:
        layout = Layout(width=max(40, min(200, width)), color=color, unicode=unicode)
        layout.header([Piece(jobs_in_words(diagnosis))], [])
        parts.insert(0, layout.finish())
    return "\n".join(parts)


def jobs_in_words(diagnosis: Diagnosis) -> str:
    """'2 jobs left dumps here, the worst first: replica_1 hang, replica_0 healthy.'; '' where there is one."""
    if not diagnosis.others:
        return ""
    each = ", ".join(f"{one.job} {one.outcome}" for one in (diagnosis, *diagnosis.others))
    return f"{1 + len(diagnosis.others)} jobs left dumps here, the worst first: {each}."


def _report(diagnosis: Diagnosis, *, width: int, color: bool, unicode: bool, host: str, verbose: bool) -> str:
    """The report on one job."""
    seen_here = host if any(activity.host == host for activity in diagnosis.ranks) else ""
    layout = Layout(width=width, color=color, unicode=unicode, host=seen_here)
    mark, style = _MARKS.get(diagnosis.outcome, _MARKS["blind"])
    title = (Piece("hangdoc", "bold"), Piece(f"{mark} {diagnosis.outcome}", style))
    if diagnosis.outcome == "slow" and any(activity.moving for activity in diagnosis.ranks) and not verbose:
        # The job works: one line is enough.
        stalled = [f"no progress for {name_duration(diagnosis.stalled_for)}"] if diagnosis.stalled_for > 0 else []
        layout.header(title, [*stalled, *_job(diagnosis)])
        layout.paragraph(diagnosis.verdict)
        return layout.finish()

    layout.header(title, [*_job(diagnosis, with_stall=True)])
    if diagnosis.verdict:
        layout.gap()
        layout.paragraph(diagnosis.verdict, "bold")
    if diagnosis.outcome != "healthy":
        names = FileNames(diagnosis)
        most = _MOST_BEHAVIORS if verbose else MAX_ROWS
        behaviors = [*behavior_rows(diagnosis, names, most), *process_rows(diagnosis)]
        lay_out_code(layout, diagnosis.code, names)
        # Without code, the rows are what shows the places.
        for rows in (reason_rows(diagnosis), behaviors) if diagnosis.code else (behaviors, reason_rows(diagnosis)):
            layout.gap()
            layout.rows(rows)
        layout.gap()
        has_more = folds(diagnosis) or any(activity.stack for activity in diagnosis.ranks)
        layout.rows(evidence_rows(diagnosis, verbose=verbose, more="more with -v" if has_more and not verbose else ""))
        if verbose:
            layout.gap()
            layout.rows(stack_rows(diagnosis, names))
    return layout.finish()


def render_for(
    stream: TextIO,
    diagnosis: Diagnosis,
    environment: Mapping[str, str] | None = None,
    *,
    color: str = "auto",
    verbose: bool = False,
) -> str:
    """The report as ``stream`` can show it: its width, encoding, colors and links.

    ``color``: 'always', 'never', or 'auto', which respects NO_COLOR, FORCE_COLOR and TERM.
    """
    shown = shown_by(stream, environment, color)
    text = render(
        diagnosis,
        width=shown.width,
        color=shown.color,
        unicode=shown.unicode,
        host=socket.gethostname() if shown.links else "",
        verbose=verbose,
    )
    return inert(text, environment)


def recall(diagnosis: Diagnosis, *, width: int = 100, color: bool = False, unicode: bool = True) -> str:
    """The answer alone, for somebody who has seen the report scroll by: verdict, code, why, fix and how sure."""
    layout = Layout(width=max(40, min(200, width)), color=color, unicode=unicode)
    mark, style = _MARKS.get(diagnosis.outcome, _MARKS["blind"])
    layout.header((Piece("hangdoc", "bold"), Piece(f"{mark} {diagnosis.outcome}", style)), _job(diagnosis))
    layout.gap()
    layout.paragraph(diagnosis.verdict, "bold")
    lay_out_code(layout, diagnosis.code, FileNames(diagnosis))
    layout.gap()
    layout.rows(reason_rows(diagnosis))
    layout.gap()
    layout.rows([*confidence_row(diagnosis), *next_row(diagnosis)])
    return layout.finish()


def recall_for(
    stream: TextIO, diagnosis: Diagnosis, environment: Mapping[str, str] | None = None, *, color: str = "auto"
) -> str:
    """``recall`` as ``stream`` can show it."""
    shown = shown_by(stream, environment, color)
    text = recall(diagnosis, width=shown.width, color=shown.color, unicode=shown.unicode)
    return inert(text, environment)


def heard_for(
    stream: TextIO,
    outcome: str,
    sentence: str,
    fix: str,
    hosts: int,
    environment: Mapping[str, str] | None = None,
    *,
    color: str = "auto",
) -> str:
    """Sentence and fix of a diagnosis of ``hosts`` hosts that was made on another host, as ``stream`` can show it."""
    shown = shown_by(stream, environment, color)
    layout = Layout(width=max(40, min(200, shown.width)), color=shown.color, unicode=shown.unicode)
    known = outcome if outcome in _MARKS else "blind"
    mark, style = _MARKS[known]
    title = (Piece("hangdoc", "bold"), Piece(f"{mark} {known}", style))
    layout.header(title, (f"{hosts} host{'s' if hosts != 1 else ''}",))
    layout.gap()
    layout.paragraph(sentence, "bold")
    if fix:
        layout.gap()
        layout.rows([Row("fix", (Piece(fix),))])
    return inert(layout.finish(), environment)


def headline(diagnosis: Diagnosis) -> tuple[str, list[str]]:
    """('✖ hang', ['4 ranks', 'stalled 31 s', 'torchrun train.py'])."""
    mark, _ = _MARKS.get(diagnosis.outcome, _MARKS["blind"])
    return f"{mark} {diagnosis.outcome}", list(_job(diagnosis, with_stall=True))


class Shown(NamedTuple):
    """What a stream can show: cells of a line, colors, Unicode, links."""

    width: int
    color: bool
    unicode: bool
    links: bool


def shown_by(stream: TextIO, environment: Mapping[str, str] | None = None, color: str = "auto") -> Shown:
    """What the stream can show."""
    environment = os.environ if environment is None else environment
    terminal, columns = _terminal(stream)
    if not columns:
        chosen = environment.get("COLUMNS", "")
        columns = int(chosen) if chosen.isascii() and chosen.isdigit() else 100
    kind = environment.get("TERM", "")
    dumb = kind in ("dumb", "")
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "").replace("_", "")
    wanted = (terminal and not dumb) or bool(environment.get("FORCE_COLOR"))
    colored = color == "always" or (color != "never" and wanted and not environment.get("NO_COLOR"))
    return Shown(
        min(columns, 140),
        colored,
        encoding in ("utf8", "utf8sig"),
        # The kernel's own console prints them.
        terminal and colored and not dumb and kind != "linux",
    )


def _terminal(stream: TextIO) -> tuple[bool, int]:
    try:
        if not stream.isatty():
            return False, 0
        return True, os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError, AttributeError):
        return False, 0


def _job(diagnosis: Diagnosis, *, with_stall: bool = False) -> Iterator[str]:
    if diagnosis.job:
        yield diagnosis.job
    size = diagnosis.world_size or len(diagnosis.ranks)
    if size:
        yield f"{size} rank{'s' if size != 1 else ''}"
    if with_stall and diagnosis.outcome in ("hang", "slow", "blind") and diagnosis.stalled_for > 0:
        yield f"stalled {name_duration(diagnosis.stalled_for)}"
    if diagnosis.command:
        yield _short_command(diagnosis.command)


def _short_command(command: tuple[str, ...]) -> str:
    """Program and script without their options, which are long and may hold secrets."""
    program = PurePosixPath(command[0]).name or command[0]
    called = command[1] if len(command) > 1 else ""
    if program.startswith("python") and called.startswith("/") and not called.endswith(".py"):
        program = PurePosixPath(called).name  # what pip installed: torchrun, accelerate
    for index, argument in enumerate(command[1:], start=1):
        if argument.endswith(".py"):
            return f"{program} {PurePosixPath(argument).name}"
        if argument == "-m" and index + 1 < len(command):
            return f"{program} -m {command[index + 1]}"
    return program
