"""``hangdoc diagnose PATH…``: the verdict on a saved job, or on what is left of a dead one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hangdoc.cli.diagnosing import EXIT_STATUS, print_diagnosis
from hangdoc.cli.options import Color, SavedJob, Verbose
from hangdoc.config import environment_variable
from hangdoc.errors import UsageError
from hangdoc.model.collector import without_collector
from hangdoc.progress import working

app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})


# Long because typer reads the options from the parameters.
@app.command()
def diagnose(
    paths: SavedJob,
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
            help="Copy of the program's files, for dumps and logs of a job that had them elsewhere.",
            envvar=environment_variable("source"),
        ),
    ] = None,
    color: Color = "auto",
    verbose: Verbose = False,
) -> None:
    """Diagnose a dead job by its logs, pasted stacks or flight-recorder dumps; or a snapshot or run directory.

    What a file is, hangdoc sees by what stands in it. Several paths are taken as one job and joined to one verdict. Of
    several jobs in one folder of dumps each is diagnosed, the worst first.

    Exit status: 0 healthy or slow, 1 hang or crash diagnosed, 2 usage, 3 could not look; of several jobs the worst's.
    """
    from hangdoc import api
    from hangdoc.report import check_suffix

    for file in report or ():
        check_suffix(file)
    if source is not None and not source.is_dir():
        raise UsageError(f"no such directory: {source}", "Give --source the folder with the program's files.")
    with without_collector(), working("reading") as line:
        job = api.load(*paths, source=source, progress=line.reading())
        line.text = "diagnosing"
        diagnosis = api.diagnose(job)
    # Of several jobs in one folder, a page shows the one that is worst.
    shown = next((each for each in (job, *job.others) if diagnosis.job and each.run_id == diagnosis.job), job)
    print_diagnosis(diagnosis, shown, report or (), json=json, color=color, verbose=verbose)
    raise typer.Exit(EXIT_STATUS.get(diagnosis.outcome, 3))
