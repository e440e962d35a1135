"""Which hosts `hangdoc attach` and `hangdoc collect` ask, from their options."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from hangdoc.cli.options import Duration
from hangdoc.config import environment_variable
from hangdoc.errors import UsageError

if TYPE_CHECKING:
    from hangdoc.capture.asking import HostsRequest
    from hangdoc.capture.request import CaptureOptions


Inject = Annotated[
    bool,
    typer.Option(
        "--inject",
        help="Also fetch the call history from inside the waiting ranks, with gdb. Holds each for half a second;"
        " skipped where it could do harm.",
        envvar=environment_variable("inject"),
    ),
]
AskDumps = Annotated[
    bool,
    typer.Option(
        "--ask-dumps",
        help="Also have PyTorch write the dumps of its flight recorders anew, over the pipes that"
        " TORCH_NCCL_DEBUG_INFO_PIPE_FILE has set up, and read them.",
        envvar=environment_variable("ask_dumps"),
    ),
]
NoSource = Annotated[
    bool,
    typer.Option("--no-source", help="Read no source code of the job.", envvar=environment_variable("no_source")),
]
Hosts = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES", help="Also look at these hosts, over ssh: node0,node1 or, with ClusterShell, node[0-63]."
    ),
]
Rsh = Annotated[
    str | None,
    typer.Option(
        metavar="CMD",
        help="How to run a command on a host of --hosts instead of ssh: 'CMD {host}'.",
        envvar=environment_variable("rsh"),
    ),
]
Slurm = Annotated[
    str | None,
    typer.Option(metavar="JOBID[.STEP]", help="Look at all nodes of this Slurm job, by srun --overlap."),
]
Kubectl = Annotated[
    bool, typer.Option("--kubectl", help="Look at all running pods that --selector names, by kubectl exec.")
]
Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Of the pods.")]
Selector = Annotated[str | None, typer.Option("--selector", "-l", help="The labels of the pods.")]
Container = Annotated[str | None, typer.Option("--container", "-c", help="Of each pod, if not its default container.")]
DebugImage = Annotated[
    str | None,
    typer.Option(
        metavar="IMAGE",
        help="Run hangdoc in an ephemeral container of this image beside --container, by kubectl debug.",
    ),
]
Job = Annotated[
    str | None,
    typer.Option(
        metavar="NAME=VALUE,...",
        help="Which job on the hosts, by its ranks' environment. With PID: as its ranks have it.",
    ),
]
RemoteHangdoc = Annotated[
    str | None,
    typer.Option(
        metavar="CMD",
        help="How hangdoc is started on the hosts. Default: as here, in pods by its name.",
        envvar=environment_variable("remote_hangdoc"),
    ),
]
HostTimeout = Annotated[
    float,
    typer.Option(
        metavar="DURATION",
        parser=Duration(1.0),
        show_default=False,
        help="How long each host may take to answer: 30s, of collect 5m.",
        envvar=environment_variable("host_timeout"),
    ),
]
FanOut = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        help="How many hosts are asked from here. Where there are more, each of N asks some of the others.",
        envvar=environment_variable("fan_out"),
    ),
]
_CONNECT_SECONDS = 30.0
"""That ssh may take to reach a host, however long its answer may take."""


@dataclass(frozen=True, slots=True)
class HostOptions:
    """The options as they were typed; None or '' for those that were not."""

    hosts: str | None = None
    rsh: str | None = None
    slurm: str | None = None
    kubectl: bool = False
    namespace: str | None = None
    selector: str | None = None
    job: str | None = None
    remote_hangdoc: str | None = None
    seconds: float = 30.0
    fan_out: int = 64
    container: str | None = None
    debug_image: str | None = None

    @property
    def given(self) -> bool:
        """True if other hosts are to be asked."""
        return bool(self.hosts is not None or self.slurm is not None or self.kubectl)


def check(options: HostOptions) -> None:
    """Raises ``UsageError`` for options that do not fit together."""
    # One branch for each pair of options that contradict each other.
    ways = [
        name
        for name, given in (("--hosts", options.hosts), ("--slurm", options.slurm), ("--kubectl", options.kubectl))
        if given
    ]
    if len(ways) > 1:
        raise UsageError(f"{' and '.join(ways)} name the hosts twice", "Give one of them.")
    if options.rsh is not None and options.hosts is None:
        raise UsageError("--rsh needs the names of the hosts", "Add --hosts node0,node1.")
    of_pods = (options.selector, options.namespace, options.container, options.debug_image)
    if any(option is not None for option in of_pods) and not options.kubectl:
        raise UsageError("a selector, a namespace, a container and its image are about pods", "Add --kubectl.")
    if options.kubectl and not options.selector:
        raise UsageError("--kubectl needs to know which pods", "Add their labels: -l training.kubeflow.org/job-name=X.")
    if options.debug_image and not options.container:
        raise UsageError("--debug-image needs to know whose processes to look at", "Add --container NAME.")
    if not options.given and (options.job is not None or options.remote_hangdoc is not None):
        name = "--job" if options.job is not None else "--remote-hangdoc"
        raise UsageError(f"{name} needs hosts to ask", "Add --hosts, --slurm or --kubectl.")


def request_of(options: HostOptions, what: CaptureOptions) -> HostsRequest:
    """The request for ``what``. Asks Slurm or Kubernetes for the hosts. Raises ``UsageError`` and ``CannotLook``."""
    from hangdoc.capture import transports
    from hangdoc.capture.asking import HostsRequest
    from hangdoc.capture.find.job_key import parse_key

    variables: Mapping[str, str] = parse_key(options.job) if options.job is not None else {}
    if options.slurm is not None:
        nodes = transports.slurm(options.slurm)
    elif options.kubectl:
        nodes = transports.kubectl(
            options.selector or "", options.namespace or "", options.container or "", options.debug_image or ""
        )
    else:
        names = tuple(transports.host_names(options.hosts or ""))
        connect = min(options.seconds, _CONNECT_SECONDS)
        how = transports.rsh(options.rsh) if options.rsh is not None else transports.ssh(connect)
        nodes = transports.Nodes(names, how)
    return HostsRequest(
        hosts=nodes.hosts,
        transport=nodes.transport,
        hangdoc=_remote_words(options),
        variables={**dict(nodes.variables), **variables},
        seconds=options.seconds,
        options=what,
        at_once=options.fan_out,
    )


def _remote_words(options: HostOptions) -> list[str]:
    """How hangdoc is started there: as here, by its path, since hosts of a cluster share file systems or images; in
    pods, whose image is another one, by its name."""
    from hangdoc.capture.safe.advice import ourselves

    default = "hangdoc" if options.kubectl else ourselves()
    try:
        return shlex.split(options.remote_hangdoc or default)
    except ValueError as error:
        raise UsageError(f"--remote-hangdoc cannot be read: {error}", "Quote it as for a shell.") from None
