"""Sockets of the job's processes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ListeningPort:
    """A TCP port that a process of the job listens on. ``pid`` is None where the owner could not be found."""

    pid: int | None
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Connection:
    """A TCP connection of a process of the job. Queues in bytes; ``retransmits``: of the oldest unanswered segment."""

    pid: int | None
    local_address: str
    local_port: int
    remote_address: str
    remote_port: int
    state: str
    receive_queue: int = 0
    send_queue: int = 0
    retransmits: int = 0
