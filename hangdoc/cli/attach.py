"""``hangdoc attach [PID]``: the verdict on a job that runs or hangs now, by any of its processes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from hangdoc.cli.diagnosing import EXIT_STATUS, print_diagnosis
from hangdoc.cli.host_options import HostOptions, check, request_of
from hangdoc.cli.options import Color, Duration, Verbose
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
    hosts: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Also look at these hosts, over ssh: node0,node1 or, with ClusterShell, node[0-63]."
        ),
    ] = None,
    rsh: Annotated[
        str | None,
        typer.Option(
            metavar="CMD",
            help="How to run a command on a host of --hosts instead of ssh: 'CMD {host}'.",
            envvar=environment_variable("rsh"),
        ),
    ] = None,
    slurm: Annotated[
        str | None,
        typer.Option(metavar="JOBID[.STEP]", help="Look at all nodes of this Slurm job, by srun --overlap."),
    ] = None,
    kubectl: Annotated[
        bool, typer.Option("--kubectl", help="Look at all running pods that --selector names, by kubectl exec.")
    ] = False,
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Of the pods.")] = None,
    selector: Annotated[str | None, typer.Option("--selector", "-l", help="The labels of the pods.")] = None,
    container: Annotated[
        str | None, typer.Option("--container", "-c", help="Of each pod, if not its default container.")
    ] = None,
    debug_image: Annotated[
        str | None,
        typer.Option(
            metavar="IMAGE",
            help="Run hangdoc in an ephemeral container of this image beside --container, by kubectl debug.",
        ),
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=VALUE,...",
            help="Which job on the hosts, by its ranks' environment. With PID: as its ranks have it.",
        ),
    ] = None,
    remote_hangdoc: Annotated[
        str | None,
        typer.Option(
            metavar="CMD",
            help="How hangdoc is started on the hosts. Default: as here, in pods by its name.",
            envvar=environment_variable("remote_hangdoc"),
        ),
    ] = None,
    host_timeout: Annotated[
        float,
        typer.Option(
            metavar="DURATION",
            parser=Duration(1.0),
            show_default="30s",
            help="How long each host may take to answer.",
            envvar=environment_variable("host_timeout"),
        ),
    ] = 30.0,
    fan_out: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="How many hosts are asked from here. Where there are more, each of N asks some of the others.",
            envvar=environment_variable("fan_out"),
        ),
    ] = 64,
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
    from hangdoc.model.codec import dump_snapshot
    from hangdoc.report import check_suffix

    for file in report or ():
        check_suffix(file)
    if asked.given:
        request = request_of(asked, inject=inject, ask_dumps=ask_dumps, no_source=no_source)
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
