"""What NCCL itself says of its communicators: the answer of its RAS service."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommunicatorMember:
    """One rank of a communicator."""

    number: int
    """Its rank in the communicator, which need not be its rank in the job."""
    rank: int | None = None
    """Its rank in the job; None where that is not known."""
    pid: int | None = None
    """As its own pid namespace counts."""
    node: str = ""
    """The address that NCCL uses of its host."""


@dataclass(frozen=True, slots=True)
class OperationCount:
    """Members that have launched the same number of one operation; ``members`` are named if they are few."""

    operation: str
    """As NCCL names it: 'AllReduce', 'Broadcast', …; '' of all operations together (NCCL 2.24 and 2.25)."""
    count: int
    how_many: int
    members: tuple[CommunicatorMember, ...] = ()


@dataclass(frozen=True, slots=True)
class Communicator:
    """A communicator in which something differs between its members, or of which some do not answer."""

    name: str
    """NCCL's hash of it, in hexadecimal digits; its log has it too."""
    size: int
    """0: not known."""
    silent: tuple[CommunicatorMember, ...] = ()
    """Members whose process does not answer NCCL's own threads."""
    silent_count: int = 0
    """All of them; ``silent`` names the first."""
    counts: tuple[OperationCount, ...] = ()
    """Of each operation whose number differs between members, the most common number first."""


@dataclass(frozen=True, slots=True)
class NcclStatus:
    """The communicators in which NCCL sees a difference, at one moment.

    Members of a running job differ for a moment in every call; the counts are of launched operations, not of completed
    ones.
    """

    communicators: tuple[Communicator, ...] = ()
    seen: int = 0
    """How many communicators there are in all."""
