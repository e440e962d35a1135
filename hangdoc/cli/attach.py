"""``hangdoc attach [PID]``: the verdict on a job that runs or hangs now, by any of its processes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from hangdoc.cli.diagnosing import EXIT_STATUS, print_diagnosis
from hangdoc.cli.host_options import (
    AskDumps,
    Container,
    DebugImage,
    FanOut,
    HostOptions,
    Hosts,
    HostTimeout,
    Inject,
    Job,
    Kubectl,
    Namespace,
    NoSource,
    RemoteHangdoc,
    Rsh,
    Selector,
    Slurm,
    check,
    request_of,
)  # fmt: skip
from hangdoc.cli.options import Color, Verbose
from hangdoc.config import environment_variable
from hangdoc.errors import HangdocError
from hangdoc.progress import working


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
            help="Also write a report; .html, .md, .txt, .json or .trace.json (Perfetto). Repeatable.",
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
    inject: Inject = False,
    ask_dumps: AskDumps = False,
    no_source: NoSource = False,
    hosts: Hosts = None,
    rsh: Rsh = None,
    slurm: Slurm = None,
    kubectl: Kubectl = False,
    namespace: Namespace = None,
    selector: Selector = None,
    container: Container = None,
    debug_image: DebugImage = None,
    job: Job = None,
    remote_hangdoc: RemoteHangdoc = None,
    host_timeout: HostTimeout = 30.0,
    fan_out: FanOut = 64,
    color: Color = "auto",
    verbose: Verbose = False,
) -> None:
    """Find all ranks of the job that PID belongs to, look at them twice and say which rank hangs it, where and why.

    With --hosts, --slurm or --kubectl the job's other hosts are looked at too, each by a hangdoc there.
    Without --inject and --ask-dumps the job is only read, and NCCL's own status service asked where its ranks offer it;
    pystack, if installed, holds up to four waiting ranks for 0.2 s each.
    Exit status: 0 healthy or slow, 1 hang or crash diagnosed, 2 usage, 3 could not look.
    """
    # Long because typer reads the options from the parameters.
    asked = HostOptions(
        hosts,
        rsh,
        slurm,
        kubectl,
        namespace,
        selector,
        job,
        remote_hangdoc,
        host_timeout,
        fan_out=fan_out,
        container=container,
        debug_image=debug_image,
    )
    check(asked)
    if pid is None and not asked.given:
        _list()
        return
    from hangdoc import api
    from hangdoc.capture.request import CaptureOptions
    from hangdoc.model.codec import dump_snapshot
    from hangdoc.report import check_suffix

    for file in report or ():
        check_suffix(file)
    if asked.given:
        what = CaptureOptions(inject=inject, ask_dumps=ask_dumps, native=True, no_source=no_source)
        request = request_of(asked, what)
        with working("looking at the hosts of the job"):
            snapshot = api.snapshot_of_hosts(request, pid)
    else:
        assert pid is not None
        with working(f"looking twice at the job of pid {pid}"):
            snapshot = api.snapshot(pid, inject=inject, ask_dumps=ask_dumps, no_source=no_source)
    failure = None
    try:
        if save is not None:
            dump_snapshot(snapshot, save)
    except HangdocError as error:  # reported after the verdict, which would be lost otherwise
        failure = error
    with working("diagnosing"):
        diagnosis = api.diagnose(snapshot)
    print_diagnosis(diagnosis, snapshot, report or (), json=json, color=color, verbose=verbose)
    if failure is not None:
        raise failure
    raise typer.Exit(EXIT_STATUS.get(diagnosis.outcome, 3))


def _list() -> None:
    from hangdoc import api
    from hangdoc.progress import columns
    from hangdoc.report.listing import render

    with working("looking for jobs"):
        found = api.jobs()
    typer.echo(render(found, time.time(), columns()), nl=False)
