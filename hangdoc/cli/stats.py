"""``hangdoc stats PATH…``: who comes late to the collectives of a saved job."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hangdoc.cli.options import SavedJob


def stats(
    paths: SavedJob,
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
    from hangdoc.model.wording import in_ascii
    from hangdoc.report import statistics
    from hangdoc.report.terminal import shown_by

    shown = shown_by(sys.stdout)
    text = statistics.render(found, width=max(60, shown.width))
    typer.echo(text if shown.unicode else in_ascii(text), nl=False)
