"""Ways to run a command on another host: ssh, srun, kubectl exec, or whatever command a person names.

Each is a command line with a place for the host's name. All that hangdoc runs there is `hangdoc capture`, whose
arguments no shell changes.
"""

from __future__ import annotations

import re
import shlex
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass

from hangdoc.capture.safe.text import clean
from hangdoc.capture.safe.tool import run_tool
from hangdoc.errors import CannotLook, UsageError

_PLACE = "{host}"
_MOST_HOSTS = 20_000
_MOST_OUTPUT = 4 << 20
"""Bytes of what squeue or kubectl lists. Judgement: 20,000 names."""
_LISTING_SECONDS = 30.0
"""For a controller that is busy. Judgement."""
_NAME = re.compile(r"[A-Za-z0-9_.:@%/+~\[\]][A-Za-z0-9_.:@%/+~\[\]-]*")
"""Of a host or a pod, also as user@host or ssh://host:22. It is a word of command lines, and ssh puts it into the shell
line of a ProxyCommand: so it is no option, and holds nothing that a shell would act on."""
_RANGES = re.compile(r"\[([^\[\]]*)\]")
_PARTS = re.compile(r"[,!&^\s](?![^\[\]]*\])")
"""Between the parts of a set of nodes: its operators, outside of brackets."""
_MOST_DIGITS = 18
_NODESETS = "pip install 'hangdoc[hosts]'"


@dataclass(frozen=True, slots=True)
class Transport:
    """How to reach a host. ``words``: the command line up to the remote command, with '{host}' for its name."""

    name: str
    """What the messages call it: 'ssh', 'srun', 'kubectl', 'the command of --rsh'."""
    words: tuple[str, ...]
    through_shell: bool = False
    """True if it hands the remote command to a shell as one text, as ssh does."""
    between_hosts: bool = False
    """True if hosts may reach each other in the same way."""

    def command(self, host: str, remote: Sequence[str]) -> list[str]:
        """The command line that runs ``remote`` on ``host``."""
        words = [word.replace(_PLACE, host) for word in self.words]
        return [*words, shlex.join(remote)] if self.through_shell else [*words, *remote]


def ssh(connect_seconds: float) -> Transport:
    """ssh that never asks a question: keys, users and jump hosts are those of ~/.ssh/config."""
    options = ("-o", "BatchMode=yes", "-o", f"ConnectTimeout={max(1, int(connect_seconds))}")
    return Transport("ssh", ("ssh", *options, "--", _PLACE), through_shell=True, between_hosts=True)


def rsh(template: str) -> Transport:
    """The transport of --rsh. The remote command follows as further arguments. Raises ``UsageError``."""
    try:
        words = tuple(shlex.split(template))
    except ValueError as error:
        raise UsageError(f"--rsh cannot be read: {error}", "Quote it as for a shell: --rsh 'ssh {host}'.") from None
    if not words or not any(_PLACE in word for word in words):
        raise UsageError("--rsh has no place for the host", "Write {host} where its name belongs: --rsh 'ssh {host}'.")
    return Transport("the command of --rsh", words, between_hosts=True)


def host_names(text: str) -> list[str]:
    """The hosts that --hosts names, in order and once each. Raises ``UsageError``.

    Names with commas are split here; what else ClusterShell's node sets can say ('node[0-63]', '@rack1') needs
    ClusterShell. Example: 'a,b,c[0-2]' → a, b, c0, c1, c2.
    """
    if any(character in text for character in "[]@!&^"):
        names = _of_node_set(text)
    else:
        names = [name for part in text.split(",") for name in part.split()]
    names = list(dict.fromkeys(names))
    if not names:
        raise UsageError("--hosts names no host", "Write their names with commas: --hosts node0,node1.")
    if len(names) > _MOST_HOSTS:
        raise UsageError(f"--hosts names {len(names)} hosts", f"Ask for at most {_MOST_HOSTS} at once.")
    for name in names:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{clean(name, 60)!r} is no name of a host", "Write their names with commas.")
    return names


def _of_node_set(text: str) -> list[str]:
    try:
        from ClusterShell.NodeSet import NodeSet, NodeSetException
        from ClusterShell.NodeUtils import GroupResolverError, GroupSourceError
    except ImportError:
        raise UsageError(
            f"the node set {clean(text, 80)!r} needs ClusterShell",
            f"Install it ({_NODESETS}), or write the names of the hosts with commas.",
        ) from None
    # A set is made number by number, also of what an '&' takes away again: 10 million take 1.5 GB.
    largest = max(map(_size, _PARTS.split(text)))
    if largest > _MOST_HOSTS:
        raise UsageError(f"--hosts names {largest} hosts", f"Ask for at most {_MOST_HOSTS} at once.")
    try:
        nodes = NodeSet(text)
        if len(nodes) > _MOST_HOSTS:
            raise UsageError(f"--hosts names {len(nodes)} hosts", f"Ask for at most {_MOST_HOSTS} at once.")
        return list(nodes)
    # Groups are found by files and commands of the site, which fail in ways of their own.
    except (NodeSetException, GroupSourceError, GroupResolverError, ValueError, OSError) as error:
        raise UsageError(f"--hosts cannot be read: {clean(str(error), 200)}", "Write it as node[0-63].") from None


def _size(part: str) -> int:
    """How many names a part without operators stands for at most, unmade: 'n[0-9]m[1,3]' → 20; groups count as one."""
    size = 1
    for ranges in _RANGES.findall(part):
        size *= sum(_length(each) for each in ranges.split(","))
    return size


def _length(numbers: str) -> int:
    """Of a range: '0-9/2' → 5. More digits than a number of a host has count as too many."""
    first, _, last = numbers.partition("/")[0].partition("-")
    step = numbers.partition("/")[2]
    if max(map(len, (first, last, step))) > _MOST_DIGITS:
        return _MOST_HOSTS + 1
    if not (first.isdecimal() and last.isdecimal()):
        return 1
    return abs(int(last) - int(first)) // (int(step) if step.isdecimal() and int(step) else 1) + 1


def fold(names: Sequence[str]) -> str:
    """The names in as few characters as ClusterShell can, where it is installed: 'node[0-2,7]'; else 'node0, …'."""
    if len(names) > 1:
        try:
            from ClusterShell.NodeSet import NodeSet, NodeSetException

            return str(NodeSet.fromlist(list(names)))
        except ImportError:
            pass
        except NodeSetException:  # a name that is none to it
            pass
    return ", ".join(names)


@dataclass(frozen=True, slots=True)
class Nodes:
    """The hosts on which a job runs, how to reach them, and the variables by which they know the job."""

    hosts: tuple[str, ...]
    transport: Transport
    variables: tuple[tuple[str, str], ...] = ()


def slurm(job: str) -> Nodes:
    """The nodes of a Slurm job, 'JOBID' or 'JOBID.STEP'. One step of one task for each node runs beside the job's own.

    Raises ``UsageError`` for anything but numbers, ``CannotLook`` where Slurm does not show such a running job.
    """
    number, _, step = job.partition(".")
    if not number.replace("_", "").isdecimal() or not (step.isdecimal() or not _):
        raise UsageError(f"{clean(job, 40)!r} is no job of Slurm", "Write JOBID or JOBID.STEP, as `squeue -s` does.")
    remedy = "`squeue --me` lists the jobs that run."
    listed = _listed(["squeue", "--noheader", "--jobs", number, "--states=RUNNING", "--format=%A %N"], remedy)
    rows = [line.split() for line in listed.splitlines() if len(line.split()) == 2]
    if len(rows) != 1:
        raise CannotLook(
            f"Slurm shows no running job {number}" if not rows else f"{number} is {len(rows)} jobs", remedy
        )
    (raw, nodes) = rows[0]
    if not raw.isdecimal():
        raise CannotLook(f"squeue calls job {number} {clean(raw, 40)!r}", remedy)
    hosts = _names(_listed(["scontrol", "show", "hostnames", nodes], remedy).split(), "scontrol", remedy)
    variables = (("SLURM_JOB_ID", raw), *((("SLURM_STEP_ID", step),) if step else ()))
    # --overlap: the job's own steps have all its processors. Nothing that srun reads may change what is run.
    options = ("--overlap", f"--jobid={raw}", "--nodes=1", "--ntasks=1", "--quiet", "--input=none", "--export=ALL")
    return Nodes(hosts, Transport("srun", ("srun", *options, f"--nodelist={_PLACE}")), variables)


def kubectl(selector: str, namespace: str = "", container: str = "", image: str = "") -> Nodes:
    """The running pods that a label selector names. Raises ``CannotLook`` where there are none.

    ``container``: of each pod; '' its default one. With ``image``, hangdoc runs in an ephemeral container made from it,
    which sees the processes of ``container``.
    """
    where = [f"--namespace={namespace}"] if namespace else []
    line = ["kubectl", "get", "pods", *where, f"--selector={selector}", "--field-selector=status.phase=Running"]
    remedy = f"See what runs: {shlex.join(['kubectl', 'get', 'pods', *where, '--show-labels'])}"
    listed = _listed([*line, "--output=name"], remedy)
    pods = _names([name.removeprefix("pod/") for name in listed.split()], "kubectl", remedy)
    if not pods:
        raise CannotLook(f"kubectl shows no running pod with {clean(selector, 100)}", remedy)
    if image:
        # The profile lets it look into processes of other containers: CAP_SYS_PTRACE.
        options = (f"--image={image}", f"--target={container}", "--profile=general", "--quiet", "--stdin")
        return Nodes(pods, Transport("kubectl", ("kubectl", "debug", *where, *options, _PLACE, "--")))
    chosen = [f"--container={container}"] if container else []
    return Nodes(pods, Transport("kubectl", ("kubectl", "exec", *where, *chosen, _PLACE, "--")))


def _names(listed: Sequence[str], by: str, remedy: str) -> tuple[str, ...]:
    """The names that a program lists. Raises ``CannotLook`` for what cannot be one, and for too many."""
    odd = next((name for name in listed if not _NAME.fullmatch(name)), None)
    if odd is not None:
        raise CannotLook(f"{by} names {clean(odd, 60)!r}, which is no name of a host", remedy)
    if len(listed) > _MOST_HOSTS:
        raise CannotLook(f"{by} names {len(listed)} hosts, and at most {_MOST_HOSTS} can be asked at once", remedy)
    return tuple(listed)


def _listed(line: list[str], remedy: str) -> str:
    """What a program that lists hosts writes. Raises ``CannotLook`` where it fails."""
    if shutil.which(line[0]) is None:
        raise CannotLook(f"there is no {line[0]} here", f"Run hangdoc where {line[0]} works, or use --hosts or --rsh.")
    try:
        done = run_tool(line, until=time.monotonic() + _LISTING_SECONDS, most_output=_MOST_OUTPUT)
    except TimeoutError:
        raise CannotLook(f"{line[0]} has not answered in {_LISTING_SECONDS:.0f} s", remedy) from None
    except OSError as error:
        raise CannotLook(f"{line[0]} cannot be run: {error}", remedy) from None
    if done.status:
        words = clean(done.errors.decode("utf-8", "backslashreplace").strip(), 300)
        raise CannotLook(f"{line[0]} failed: {words or f'exit status {done.status}'}", remedy)
    return done.output.decode("utf-8", "replace")
