"""``hangdoc stats PATH…``: who comes late to the collectives of a saved job."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer


def stats(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...",
            help="Snapshot file, run directory, or directory of flight-recorder dumps. Of a job on several hosts: one"
            " snapshot or run directory of each.",
        ),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Count a job's collectives, and say how far apart the ranks issue them and who comes last.

    Of a job that runs, save a snapshot first: hangdoc attach PID --save job.hangdoc; hangdoc stats job.hangdoc

    Exit status: 0, 2 usage, 3 could not look.
    """
    from hangdoc import api
    from hangdoc.model.lateness import lateness

    found = lateness(api.load(*paths))
    if json:
        from dataclasses import asdict
        from json import dumps

        typer.echo(dumps(asdict(found), indent=1))
        return
    from hangdoc.report import statistics

    text = statistics.render(found, width=max(60, min(140, shutil.get_terminal_size((100, 24)).columns)))
    if "utf" not in (sys.stdout.encoding or "").lower():
        text = text.encode(sys.stdout.encoding or "ascii", "replace").decode(sys.stdout.encoding or "ascii")
    typer.echo(text, nl=False)
