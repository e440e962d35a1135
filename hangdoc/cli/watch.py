"""``hangdoc watch [OPTIONS] [--] COMMAND…``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hangdoc.cli.options import Color, Duration, Verbose
from hangdoc.config import environment_variable as env
from hangdoc.sidecar.options import MOST_ENTRIES, RECORDED

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    # The first word that is not an option begins the command, which keeps its own options.
    context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]},
)


@app.command()
def watch(
    command: Annotated[list[str], typer.Argument(help="The command to run, with its arguments.", metavar="COMMAND…")],
    stall_after: Annotated[
        float | None,
        typer.Option(
            parser=Duration(0.1),
            metavar="DURATION",
            show_default="learns the job's rhythm, at least 30 s",
            envvar=env("stall_after"),
            help="Look closely after this long without progress: 90, 90s, 5m, 1h.",
        ),
    ] = None,
    give_up_after: Annotated[
        float,
        typer.Option(
            parser=Duration(0.1),
            metavar="DURATION",
            show_default="10m",
            envvar=env("give_up_after"),
            help="Call a wait for something outside the job (a sleep, a file, a socket) a hang after this long.",
        ),
    ] = 600.0,
    on_hang: Annotated[
        str,
        typer.Option(
            metavar="report|abort|restart",
            envvar=env("on_hang"),
            help="report: keep watching. abort: end the job after the report, with exit status 124. restart: end one "
            "rank to blame, so that torchrun (with --max-restarts) starts all ranks anew.",
        ),
    ] = "report",
    on_hang_exec: Annotated[
        str,
        typer.Option(
            metavar="CMD",
            envvar=env("on_hang_exec"),
            help="After the report of a hang, let a shell run CMD: the JSON document on its stdin, HANGDOC_* in its "
            "environment, its output on stderr.",
        ),
    ] = "",
    run_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            envvar=env("run_dir"),
            show_default=".hangdoc/<run id>",
            help="Save the snapshot and diagnosis of every stall here.",
        ),
    ] = None,
    report: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            envvar=env("report"),
            help="Also write the report of a hang here; .html, .md, .txt, .json or .trace.json (Perfetto). Repeatable.",
        ),
    ] = None,
    logs: Annotated[
        bool,
        typer.Option(
            "--logs",
            envvar=env("logs"),
            help="Give each rank log files of its own in the run directory, and print one stream of them: what several "
            "ranks say stands once, as [0-3] epoch 1. The ranks lose their terminal.",
        ),
    ] = False,
    keep: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            envvar=env("keep"),
            show_default="all",
            help="Keep the N newest runs of .hangdoc, this one among them; remove older ones that have ended.",
        ),
    ] = None,
    color: Color = "auto",
    verbose: Verbose = False,
    quiet: Annotated[bool, typer.Option("--quiet", envvar=env("quiet"), help="Print no start line.")] = False,
    no_source: Annotated[
        bool, typer.Option("--no-source", envvar=env("no_source"), help="Read no source code of the job.")
    ] = False,
    record: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT,…",
            envvar=env("record"),
            help="What each rank keeps of what it does, of collectives, messages, store (waits on it), lines (those "
            "that have run), branches (how tests came out; Python 3.12 to 3.14) and phases (data loading, forward, "
            f"backward, optimizer step). By default {','.join(RECORDED)}.",
        ),
    ] = None,
    entries: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_ENTRIES,
            metavar="N",
            envvar=env("entries"),
            show_default="2,000 collectives, 1,000 of all else",
            help="How many of each a rank keeps, the newest.",
        ),
    ] = None,
    meet: Annotated[
        str,
        typer.Option(
            metavar="auto|off|HOST:PORT|DIR",
            envvar=env("meet"),
            help="How the watches of a job on several hosts meet: through the job's own store; not at all; at an "
            "address of rank 0's host; in a folder that all hosts share.",
        ),
    ] = "auto",
    meet_send_sources: Annotated[
        bool,
        typer.Option(
            "--meet-send-sources",
            envvar=env("meet_send_sources"),
            help="Send source code and values of variables to rank 0's host, too.",
        ),
    ] = False,
) -> int:
    """Run COMMAND unchanged with a sidecar beside its ranks; when it stalls, say which rank hangs it, where and why.

    The exit status is COMMAND's own; 124 if --on-hang abort ended it, 125 if hangdoc failed before it ran.
    """
    # Long because typer reads the options from the parameters.
    from hangdoc import api
    from hangdoc.sidecar.options import ON_HANG, WatchOptions, check_meet, recorded
    from hangdoc.sidecar.signals import die_of

    if on_hang not in ON_HANG:
        raise typer.BadParameter(f"{on_hang!r} is neither {' nor '.join(ON_HANG)}.", param_hint="'--on-hang'")
    check_meet(meet)
    status = api.watch(
        command,
        WatchOptions(
            stall_after=stall_after,
            give_up_after=give_up_after,
            on_hang=on_hang,
            on_hang_exec=on_hang_exec,
            run_dir=run_dir,
            reports=tuple(report or ()),
            keep=keep,
            color=color,
            verbose=verbose,
            quiet=quiet,
            read_sources=not no_source,
            meet=meet,
            meet_send_sources=meet_send_sources,
            record=recorded(record),
            entries=entries,
            logs=logs,
        ),
        restore_signals=False,
    )
    return die_of(-status) if status < 0 else status
