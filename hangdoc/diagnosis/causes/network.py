"""HD6xx: network and device. All members are in the same call with equal arguments; no rank's code is to blame."""

from __future__ import annotations

from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import waiting_at
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import AllArrived, Blame, HeldUpUnseen
from hangdoc.model.message import sentence
from hangdoc.model.network import Connection

_LEAST_RETRANSMITS = 3
"""Of one segment: Linux waits 200 ms first and doubles, so three take 1.4 s. Single losses are sent again once."""
_MOST_PAIRS = 4
"""Pairs of addresses that a sentence names; chosen by hand."""


@cause("HD601", explains=(AllArrived, HeldUpUnseen), order=300)
def partition(case: Case, blame: Blame[AllArrived | HeldUpUnseen]) -> Finding | None:
    """HD601: connections between some hosts retransmit and nothing gets through."""
    cut = [c for host in case.job.hosts for c in host.connections if _is_cut(c)]
    if not cut:
        return None
    pairs = sorted({(c.local_address, c.remote_address) for c in cut})
    named = ", ".join(f"{a} to {b}" for a, b in pairs[:_MOST_PAIRS])
    named += f" and {len(pairs) - _MOST_PAIRS} more pairs" if len(pairs) > _MOST_PAIRS else ""
    connections = "1 connection retransmits" if len(cut) == 1 else f"{len(cut)} connections retransmit"
    who = "the ranks that were seen wait" if case.hidden else "all ranks wait"
    return Finding(
        "HD601",
        sentence(
            f"the network is cut: {connections} without an answer ({named})",
            [who, " ", waiting_at(case, tuple(sorted(case.seen))), ", and no code is to blame"],
        ),
        f"unsent data is in the send queues and is sent again and again between exactly these pairs: {named}",
        "check routes, firewalls and links between these hosts; the job goes on by itself if they come back in time",
    )


def _is_cut(connection: Connection) -> bool:
    if connection.state == "SYN_SENT":
        return connection.retransmits > 0
    return connection.send_queue > 0 and connection.retransmits >= _LEAST_RETRANSMITS


def _saw_sockets(case: Case) -> bool:
    read = any(host.connections or host.listening for host in case.job.hosts)
    return read and all(each.what != "sockets" for each in case.job.unavailable)


@cause("HD602", explains=AllArrived, order=310)
def all_arrived(case: Case, blame: Blame[AllArrived]) -> Finding | None:
    """HD602: everybody is there, and nothing moves."""
    if not case.programs:
        return None
    where = waiting_at(case, tuple(case.activities))
    return Finding(
        "HD602",
        sentence(
            ["all ranks wait ", where, ", and the call does not complete"],
            "no rank's code is to blame",
        ),
        "every member has issued the call with equal arguments"
        + (", and the sockets of this machine are quiet" if _saw_sockets(case) else ""),
        "look at the devices, drivers and network cards (`nvidia-smi`, `dmesg`), and at the backend's own log "
        "(NCCL_DEBUG=INFO)",
    )
