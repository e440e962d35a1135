"""``hangdoc diagnose PATH…``: the verdict on a saved job."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from hangdoc.config import environment_variable
from hangdoc.errors import UsageError

EXIT_STATUS = {"healthy": 0, "slow": 0, "hang": 1, "crashed": 1, "blind": 3}
"""Outcome → exit status of attach and diagnose."""
_REDRAW = 0.2
"""Seconds between two states of the progress line; what is done before the first shows none."""


app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})


# Long because typer reads the options from the parameters.
@app.command()
def diagnose(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...",
            help="Snapshot file, run directory, or directory of flight-recorder dumps. Of a job on several hosts: one"
            " snapshot or run directory of each.",
        ),
    ],
    report: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Also write a report; .html, .md, .txt, .json or .trace.json (Perfetto). Repeatable.",
            envvar=environment_variable("report"),
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print only the diagnosis document.", envvar=environment_variable("json"))
    ] = False,
    source: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Copy of the program's files, for dumps of a job that had them elsewhere.",
            envvar=environment_variable("source"),
        ),
    ] = None,
) -> None:
    """Diagnose a saved snapshot, a run directory (its latest stall), or flight-recorder dumps.

    Several paths are taken as the hosts of one job and joined to one verdict.

    Exit status: 0 healthy or slow, 1 hang or crash diagnosed, 2 usage, 3 could not look.
    """
    from hangdoc import api
    from hangdoc.report import check_suffix, document, terminal, write

    for file in report or ():
        check_suffix(file)
    if source is not None and not source.is_dir():
        raise UsageError(f"no such directory: {source}", "Give --source the folder with the program's files.")
    with _without_collector():
        with _progress() as progress:
            job = api.load(*paths, source=source, progress=progress)
        diagnosis = api.diagnose(job)
    text = document.render(diagnosis) if json else terminal.render_for(sys.stdout, diagnosis)
    typer.echo(text, nl=False)
    for file in report or ():
        write(diagnosis, file, job)
    raise typer.Exit(EXIT_STATUS.get(diagnosis.outcome, 3))


@contextmanager
def _without_collector() -> Iterator[None]:
    """Without looking for cycles: a large job is millions of objects that stay, and each look would go through all."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """What shows on a terminal how many dumps have been read, in one line of standard error that is gone at the end."""
    if not sys.stderr.isatty():
        yield None
        return
    shown, width = time.monotonic(), 0

    def show(done: int, count: int) -> None:
        nonlocal shown, width
        now = time.monotonic()
        if now - shown >= _REDRAW:
            text = f"reading dumps: {done:,} of {count:,} files"
            shown, width = now, max(width, len(text))
            sys.stderr.write(f"\r{text}")
            sys.stderr.flush()

    try:
        yield show
    finally:
        if width:
            sys.stderr.write(f"\r{' ' * width}\r")
            sys.stderr.flush()
