"""``hangdoc collect [PATH…]``: what is left of a job as one file, to be carried off a cluster."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
from hangdoc.config import environment_variable
from hangdoc.progress import working

if TYPE_CHECKING:
    from hangdoc.model.snapshot import JobSnapshot


# Long because typer reads the options from the parameters.
def collect(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write: job.hangdoc.")],
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH]...",
            help="Folders of logs or flight-recorder dumps, files, run directories; on each host those that it has.",
        ),
    ] = None,
    pid: Annotated[
        int | None,
        typer.Option(metavar="PID", min=1, help="Also the processes of the job that this one belongs to."),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Copy of the program's files, for a job that had them elsewhere.",
            envvar=environment_variable("source"),
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
    host_timeout: HostTimeout = 300.0,
    fan_out: FanOut = 64,
) -> None:
    """Put what is left of a job into one file: the facts of its logs with the lines that tell them, its dumps, its
    living ranks, and versions. Secrets are masked. `hangdoc diagnose FILE` reads it on any machine.

    The processes of a job are looked at where --pid, --job, --slurm or --kubectl names it, or no PATH is given.
    Exit status: 0 the file is written, 2 usage, 3 nothing to collect.
    """
    from hangdoc import api
    from hangdoc.announce import say
    from hangdoc.capture.request import CaptureOptions
    from hangdoc.errors import UsageError
    from hangdoc.model.same_job import HOSTS
    from hangdoc.model.wording import harmless

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
    if source is not None and not source.is_dir():
        raise UsageError(f"no such directory: {source}", "Give --source the folder with the program's files.")
    if output.is_dir():
        raise UsageError(f"{output} is a directory", "Give the name of the file to write: -o job.hangdoc.")
    # As the hosts are to find them: whoever is asked there has another working directory.
    named = [Path(os.path.abspath(path)) for path in paths or ()]  # noqa: PTH100 - with its links
    live = not named or any(each for each in (pid, slurm, kubectl, job))
    what = CaptureOptions(
        inject=inject,
        ask_dumps=ask_dumps,
        native=True,
        no_source=no_source,
        paths=tuple(map(str, named)) if asked.given else (),
        live=live,
    )
    with working("collecting") as line:
        request = request_of(asked, what) if asked.given else None
        found = api.collect(
            *named,
            pid=pid,
            request=request,
            options=what,
            output=output,
            source=source,
            progress=line.reading(),
        )
        line.text = "writing"
        size = api.save(found, output)
    for note in found.unavailable:
        if note.what == HOSTS:
            say(f"hangdoc: {harmless(note.why)}\n")
    typer.echo(_said(found, output, size))


def _said(found: JobSnapshot, output: Path, size: int) -> str:
    """The line at the end: what is in the file, its size, and what to do with it."""
    from hangdoc.capture.collect import in_words
    from hangdoc.model.wording import harmless

    left = len(found.unavailable)
    missing = f", and {left} note{'s' if left != 1 else ''} on what is missing" if left else ""
    command = f"hangdoc diagnose {shlex.quote(str(output))}"
    return harmless(f"{output} ({_size(size)}) holds {in_words(found)}{missing}. Next: {command}")


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{max(1, round(count / 1e3))} kB"
