"""The rendezvous store of a job, as a client sees it that only reads."""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.model.journal import ProcessGroup


@dataclass(frozen=True, slots=True)
class ForeignServer:
    """A process that serves a job's store and does not belong to the job."""

    pid: int | None = None
    """None: it runs on this host, and hangdoc may not read which process it is."""
    argv: tuple[str, ...] = ()
    rank: int | None = None
    """Which rank of another job it is, by its environment."""
    world_size: int | None = None
    """Of that job."""


@dataclass(frozen=True, slots=True)
class RendezvousStore:
    """The TCPStore through which the ranks found each other."""

    address: str
    port: int
    pid: int | None = None
    """The process of the job that serves it; None: another host's, or not found."""
    joined: tuple[int, ...] | None = None
    """Ranks that have published themselves in the default group; None where its backend publishes nothing readable."""
    silent: tuple[int, ...] = ()
    """Those of ``joined`` at whose published port nobody listens in the network of the process that was asked."""
    groups: tuple[ProcessGroup, ...] = ()
    """gloo groups all of whose members have published themselves."""
    keys: tuple[str, ...] = ()
    """Names of its keys, some hundreds at most; never values."""
    there: tuple[str, ...] = ()
    """Of the keys that ranks wait for, and of those that differ from one of them in a number at the end, the ones that
    are there: by the names that the ranks gave them, without the prefixes of their stores."""
    missing: tuple[str, ...] = ()
    """The keys that ranks wait for and that are not there."""
    foreign: ForeignServer | None = None
    """The process that serves it, where that one belongs to another job: what the store holds is then not read."""
