"""``hangdoc diagnose PATH…``: the verdict on a saved job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from hangdoc.config import environment_variable

EXIT_STATUS = {"healthy": 0, "slow": 0, "hang": 1, "crashed": 1, "blind": 3}
"""Outcome → exit status of attach and diagnose."""


app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})


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
            help="Also write a report; .json or .txt. Repeatable.",
            envvar=environment_variable("report"),
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print only the diagnosis document.", envvar=environment_variable("json"))
    ] = False,
) -> None:
    """Diagnose a saved snapshot, a run directory (its latest stall), or flight-recorder dumps.

    Several paths are taken as the hosts of one job and joined to one verdict.

    Exit status: 0 healthy or slow, 1 hang or crash diagnosed, 2 usage, 3 could not look.
    """
    from hangdoc import api
    from hangdoc.report import check_suffix, document, terminal, write

    for file in report or ():
        check_suffix(file)
    diagnosis = api.diagnose(api.load(*paths))
    text = document.render(diagnosis) if json else terminal.render_for(sys.stdout, diagnosis)
    typer.echo(text, nl=False)
    for file in report or ():
        write(diagnosis, file)
    raise typer.Exit(EXIT_STATUS.get(diagnosis.outcome, 3))
