"""What the launcher waits for while no rank has started."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.landmarks import landmark
from hangdoc.diagnosis.state.process import descendants
from hangdoc.model.diagnosis import CulpritProcess
from hangdoc.model.kinds import Confidence, WaitReason
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
    family = [job.launcher, *descendants(job.launcher)] if job.launcher is not None else []
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
