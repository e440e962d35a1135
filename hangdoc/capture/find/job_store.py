"""The store through which the ranks of a job found each other: the one address that hosts of a job share."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hangdoc.capture.find import rendezvous
from hangdoc.capture.find.rendezvous import Meeting, serves_store, torch_version
from hangdoc.capture.find.target import RankTarget
from hangdoc.capture.read import procfs
from hangdoc.capture.read.sockets import Sockets, read_sockets
from hangdoc.capture.safe.text import read_link
from hangdoc.model.launch import is_loopback

_OLDEST_TORCH = (2, 2)
"""Older stores use another protocol."""
_NAMED = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE")
_PLAIN = re.compile(r"[^A-Za-z0-9_.-]")
_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True)
class JobStore:
    """Where the job's store is, as sockets of its ranks on this host show it.

    ``interface``: our own address on the network on which the job's hosts reach the store; a loopback address as long
    as only processes of this host have come to it.
    """

    address: str
    port: int
    interface: str


def job_store(targets: Sequence[RankTarget]) -> JobStore | None:
    """The store that living ranks of ``targets`` are connected to; None where none of their sockets shows it.

    Example: rank 2 has RANK, MASTER_ADDR=hosta, MASTER_PORT=29500 and a connection from 10.0.0.2 to 10.0.0.1:29500 →
    ``JobStore("10.0.0.1", 29500, "10.0.0.2")``.
    """
    pids = {target.pid for target in targets if target.pid is not None and procfs.exists(target.pid)}
    if not pids or _apart(min(pids)):
        return None
    parents = {entry.ppid for entry in map(procfs.stat, pids) if entry is not None and entry.ppid > 1}
    sockets = read_sockets(sorted(pids | parents))
    found = _found(sockets, pids, [dict(target.environment) for target in targets])
    if found is None or (found.host is not None and not serves_store(found.host)):
        return None
    version = torch_version(min(pids))
    if version is not None and version < _OLDEST_TORCH:
        return None
    return JobStore(found.address, found.port, _interface(found, sockets))


def job_name(targets: Sequence[RankTarget]) -> str:
    """What the hosts of a job call it, each by itself: its launcher's number of the run, and where its ranks meet."""
    environment = next((dict(target.environment) for target in targets if target.pid is not None), {})
    words = [environment.get(name, "") for name in (*_NAMED, "MASTER_ADDR", "MASTER_PORT")]
    return _PLAIN.sub("_", "-".join(word for word in words if word))[:_LONGEST_NAME] or "job"


def _apart(pid: int) -> bool:
    """True if the process has a network of its own: its addresses are not ours."""
    return read_link(f"/proc/{pid}/ns/net") != read_link(f"/proc/{os.getpid()}/ns/net")


def _found(sockets: Sockets, pids: set[int], environments: Sequence[Mapping[str, str]]) -> Meeting | None:
    addresses = {(env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", "")) for env in environments}
    for address, port in sorted(addresses):
        if port.isdigit() and (found := rendezvous.at_address(sockets, pids, address, int(port))) is not None:
            return found
    return next(iter(rendezvous.meetings(sockets, pids)), None)


def _interface(store: Meeting, sockets: Sockets) -> str:
    """Our address towards the store; where it is on this host, the one that other hosts came to."""
    accepted = Counter(
        entry.local_address
        for entry in sockets.connections
        if store.host is not None and entry.pid == store.host and entry.local_port == store.port
    )
    came_to = [address for address, _ in accepted.most_common() if not is_loopback(address)]
    own = [entry.local_address for entry in sockets.connections if entry.remote_port == store.port]
    return next(iter([*came_to, *own]), "127.0.0.1")
