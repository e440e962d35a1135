"""``hangdoc attach [PID]``: the verdict on a job that runs or hangs now, by any of its processes."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from hangdoc.cli.diagnose import EXIT_STATUS
from hangdoc.config import environment_variable
from hangdoc.errors import HangdocError


def attach(
    pid: Annotated[
        int | None,
        typer.Argument(
            metavar="PID",
            min=1,
            help="Any process of the job: launcher, rank, DataLoader worker. Without PID: list the jobs.",
        ),
    ] = None,
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
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Save the snapshot, for `hangdoc diagnose FILE` on any machine.",
            envvar=environment_variable("save"),
        ),
    ] = None,
    inject: Annotated[
        bool,
        typer.Option(
            "--inject",
            help="Also fetch the call history from inside the waiting ranks, with gdb. Holds each for half a second;"
            " skipped where it could do harm.",
            envvar=environment_variable("inject"),
        ),
    ] = False,
    ask_dumps: Annotated[
        bool,
        typer.Option(
            "--ask-dumps",
            help="Also have PyTorch write the dumps of its flight recorders anew, over the pipes that"
            " TORCH_NCCL_DEBUG_INFO_PIPE_FILE has set up, and read them.",
            envvar=environment_variable("ask_dumps"),
        ),
    ] = False,
    no_source: Annotated[
        bool,
        typer.Option("--no-source", help="Read no source code of the job.", envvar=environment_variable("no_source")),
    ] = False,
) -> None:
    """Find all ranks of the job that PID belongs to, look at them twice and say which rank hangs it, where and why.

    Without --inject and --ask-dumps the job is only read, and NCCL's own status service asked where its ranks offer it;
    pystack, if installed, holds up to four waiting ranks for 0.2 s each.
    Exit status: 0 healthy or slow, 1 hang or crash diagnosed, 2 usage, 3 could not look.
    """
    # Long because typer reads the options from the parameters.
    if pid is None:
        _list()
        return
    from hangdoc import api
    from hangdoc.model.codec import dump_snapshot
    from hangdoc.report import check_suffix, document, terminal, write

    for file in report or ():
        check_suffix(file)
    snapshot = api.snapshot(pid, inject=inject, ask_dumps=ask_dumps, no_source=no_source)
    failure = None
    try:
        if save is not None:
            dump_snapshot(snapshot, save)
    except HangdocError as error:  # reported after the verdict, which would be lost otherwise
        failure = error
    diagnosis = api.diagnose(snapshot)
    text = document.render(diagnosis) if json else terminal.render_for(sys.stdout, diagnosis)
    typer.echo(text, nl=False)
    for file in report or ():
        write(diagnosis, file)
    if failure is not None:
        raise failure
    raise typer.Exit(EXIT_STATUS.get(diagnosis.outcome, 3))


def _list() -> None:
    from hangdoc import api
    from hangdoc.report.listing import render

    typer.echo(render(api.jobs(), time.time()), nl=False)
