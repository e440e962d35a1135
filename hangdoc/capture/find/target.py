"""A rank to look at, as the finders describe it to the capture."""

from __future__ import annotations

import socket as socket_module
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hangdoc.capture.find.launchers import Carrier
from hangdoc.capture.safe.text import read_link, read_text


@dataclass(frozen=True, slots=True)
class RankTarget:
    """A rank to look at. ``pid`` None: expected by the world size, never seen. ``socket``: its probe's."""

    rank: int
    pid: int | None
    identity: str
    """'probe', 'environment', 'launcher', 'locals', 'expected' or 'unseen', as in ``RankSnapshot``."""
    world_size: int | None = None
    local_rank: int | None = None
    restart: int = 0
    """How often its agent has started its ranks anew; the agents of one job count each for itself."""
    host: str = ""
    socket: Path | None = None
    environment: tuple[tuple[str, str], ...] = ()
    rivals: tuple[int, ...] = ()
    """Pids of other processes, started beside this one, that carry the same rank."""
    parent: int | None = None
    """Pid of what started it, or the shell or wrapper around it: torchrun's agent, say. None: not known."""


def host_name() -> str:
    """This machine's name, with which its ranks are labelled."""
    return socket_module.gethostname()


def host_identity() -> str:
    """What tells this host from every other one: the kernel's boot, and the pid and network namespaces of hangdoc.

    Two hosts, or two containers, may have the same name; the same pid means the same process only where all three are
    equal. Example: '2f1c…-77d0 4026531836 4026531840'. '' where /proc does not show them.
    """
    boot = (read_text("/proc/sys/kernel/random/boot_id", 64) or "").strip()
    spaces = [(read_link(f"/proc/self/ns/{kind}") or "").partition("[")[2].rstrip("]") for kind in ("pid", "net")]
    return " ".join([boot, *spaces]) if boot and all(spaces) else ""


def target_of(carrier: Carrier, variables: Mapping[str, str]) -> RankTarget:
    """The target for a rank that a launcher started. ``variables``: of its process."""
    return RankTarget(
        rank=carrier.rank,
        pid=carrier.pid,
        identity=carrier.identity,
        world_size=carrier.world_size,
        local_rank=carrier.local_rank,
        restart=carrier.restart,
        environment=tuple(sorted(variables.items())),
    )
