"""No rank is there yet: what does the launcher wait for?"""

from __future__ import annotations

import re

from hangdoc.diagnosis.landmarks import landmark
from hangdoc.model.catalogue import cause
from hangdoc.model.diagnosis import CulpritProcess, Diagnosis, Evidence
from hangdoc.model.kinds import WaitReason
from hangdoc.model.process import Process
from hangdoc.model.snapshot import JobSnapshot

_NODES = re.compile(r"^--nnodes(?:=(.*))?$")


def waiting_for_nodes(job: JobSnapshot) -> Diagnosis | None:
    """HD304: torchrun's agent stands in the rendezvous and has started no worker; None for any other launcher."""
    agent = next((p for p in _family(job.launcher) if _in_rendezvous(p)), None)
    nodes = _nodes(agent) if agent is not None else ""
    if agent is None or nodes.split(":")[0] in ("", "0", "1"):
        return None  # an agent that waits for nobody passes through the rendezvous, slowly on a busy machine
    hung = job.stalled_for >= job.give_up_after
    return Diagnosis(
        outcome="hang" if hung else "slow",
        verdict=f"torchrun waits in the rendezvous for other nodes (started with --nnodes {nodes}); "
        "no rank has been started.",
        confidence="likely",
        cause=cause("HD304"),
        culprit_processes=(CulpritProcess(None, None, "", "absent-node", job.run_id),),
        why="the agent of this node has joined, and fewer nodes than it was told to expect have done the same",
        fix="start torchrun on the other nodes with the same --rdzv-endpoint and --rdzv-id, or lower --nnodes; check "
        "that they can reach the endpoint",
        sure="the agent's stack seen in the rendezvous, no worker process",
        evidence=(
            Evidence("stack", (), f"the agent, process {agent.pid}, is in torchrun's rendezvous waiting for nodes"),
        ),
        unavailable=job.unavailable,
        command=job.command,
        stalled_for=job.stalled_for,
        world_size=job.world_size,
    )


def _family(process: Process | None) -> list[Process]:
    found, queue = [], [process] if process else []
    while queue:
        found.append(queue.pop())
        queue.extend(found[-1].children)
    return found


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
