"""The launcher to blame: it waits for other nodes, or it is stopped and serves the store that the ranks wait on."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.landmarks import landmark
from hangdoc.diagnosis.state.process import descendants
from hangdoc.model.diagnosis import CulpritProcess
from hangdoc.model.kinds import ActivityKind, Confidence, WaitReason
from hangdoc.model.process import Process
from hangdoc.model.snapshot import JobSnapshot

_NODES = re.compile(r"^--nnodes(?:=(.*))?$")


@dataclass(frozen=True, slots=True)
class WaitingForNodes(Explanation):
    """torchrun's agent is in the rendezvous and has started no rank."""

    agent: int
    """Its pid."""
    nodes: str
    """As it was started with: '2', '1:4'."""


def waiting_for_nodes(job: JobSnapshot) -> Blame[WaitingForNodes] | None:
    """The blame of nodes that have not joined torchrun's rendezvous.

    None for any other launcher, and for an agent of a single node: it only passes through the rendezvous, slowly on a
    busy machine.
    """
    family = [process for _, launcher in job.launchers for process in (launcher, *descendants(launcher))]
    agent = next((process for process in family if _in_rendezvous(process)), None)
    nodes = _nodes(agent) if agent is not None else ""
    if agent is None or nodes.split(":")[0] in ("", "0", "1"):
        return None
    return Blame(
        WaitingForNodes(agent.pid, nodes),
        confidence=Confidence.LIKELY,
        sure="the agent's stack seen in the rendezvous, no worker process",
        processes=(CulpritProcess(None, None, "", "absent-node", job.run_id),),
    )


@dataclass(frozen=True, slots=True)
class StoppedLauncher(Explanation):
    """The launcher serves the job's store and is stopped, so that no wait on the store can end."""

    pid: int
    port: int
    """The port of the store."""
    waiting: tuple[int, ...]
    """The ranks that wait on the store."""
    traced: bool
    """A debugger holds the launcher; else a signal stopped it."""


def stopped_launcher(case: Case) -> Blame[StoppedLauncher] | None:
    """The blame of a stopped launcher whose store ranks wait on; None if it runs, or if it does not serve the store.

    torchrun starts its ranks in sessions of their own, so ctrl-Z stops torchrun alone. Example: torchrun is in state T
    and listens on port 29500, ranks 0 and 1 with MASTER_PORT=29500 are in init_process_group → torchrun.
    """
    stopped = [
        (host, launcher, launcher.last)
        for host, launcher in case.job.launchers
        if launcher.last is not None and launcher.last.state in ("T", "t")
    ]
    if not stopped:
        return None
    waiting = tuple(sorted(r for r, a in case.activities.items() if a.kind == ActivityKind.STORE_WAIT))
    asked = {dict(case.ranks[rank].environment).get("MASTER_PORT") for rank in waiting}
    serving = (
        (name, launcher, last, entry.port)
        for name, launcher, last in stopped
        for host in case.job.hosts
        if name in ("", host.name)
        for entry in sorted(host.listening, key=lambda entry: entry.port)
        if entry.pid == launcher.pid and str(entry.port) in asked
    )
    found = next(serving, None)
    if found is None:
        return None
    name, launcher, last, port = found
    traced = bool(last.tracer_pid)
    culprit = CulpritProcess(None, launcher.pid, name or case.ranks[waiting[0]].host, "launcher", case.job.run_id)
    return Blame(
        StoppedLauncher(launcher.pid, port, waiting, traced),
        proved=not traced,
        confidence=Confidence.CERTAIN if set(waiting) == set(case.activities) else Confidence.LIKELY,
        sure=f"seen in the process table (the launcher, state {last.state}) and in its listening sockets",
        processes=(culprit,),
    )


def _in_rendezvous(process: Process) -> bool:
    main = process.last.main if process.last else None
    marks = (landmark(frame) for frame in (main.frames if main else ()))
    return any(mark is not None and mark.reason == WaitReason.RENDEZVOUS for mark in marks)


def _nodes(agent: Process) -> str:
    for index, word in enumerate(agent.argv):
        match = _NODES.match(word)
        if match:
            return match.group(1) or (agent.argv[index + 1] if index + 1 < len(agent.argv) else "")
    return ""
