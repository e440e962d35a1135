"""Hosts that cannot reach each other: what they send to each other is sent again and again, and nobody answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from hangdoc.diagnosis.bounds import OFTEN
from hangdoc.model.launch import is_loopback
from hangdoc.model.network import Connection
from hangdoc.model.snapshot import HostSnapshot


@dataclass(frozen=True)
class Cuts:
    """``connections``: those whose data is not answered. ``quiet``: those between hosts on which no data waits."""

    connections: tuple[Connection, ...]
    quiet: tuple[Connection, ...]
    owners: dict[str, str]
    """Address → the one host that has it; without addresses that several hosts have, or none that was seen."""

    def __bool__(self) -> bool:
        return bool(self.connections)

    @cached_property
    def addresses(self) -> list[tuple[str, str]]:
        """(own address, address that does not answer) of every connection that is cut, each once."""
        return sorted({(c.local_address, c.remote_address) for c in self.connections})

    @cached_property
    def unanswered(self) -> dict[tuple[str, str], set[str]]:
        """Each pair of hosts that is cut, in order → those of the two that get no answer. A host that was not seen is
        named by its address; {} where the two ends of some connection are one host's: then names say nothing."""
        found: dict[tuple[str, str], set[str]] = {}
        for own, other in self.addresses:
            sender, receiver = self._host(own), self._host(other)
            if sender == receiver:
                return {}
            found.setdefault(_pair(sender, receiver), set()).add(sender)
        return dict(sorted(found.items()))

    @cached_property
    def connected(self) -> set[tuple[str, str]]:
        """Pairs of hosts that have connections, and none that is cut."""
        pairs = {_pair(self._host(c.local_address), self._host(c.remote_address)) for c in self.quiet}
        return {pair for pair in pairs if pair[0] != pair[1]} - self.unanswered.keys()

    def _host(self, address: str) -> str:
        return self.owners.get(address, address)


def cuts(hosts: Iterable[HostSnapshot]) -> Cuts:
    """What the sockets of ``hosts`` show.

    Example: a (10.0.0.1) has data for 10.0.0.2 that it has sent five times, and b has the address 10.0.0.2 →
    ``unanswered`` is {(a, b): {a}}.
    """
    hosts = tuple(hosts)
    having: dict[str, set[str]] = {}
    for host in hosts:
        for connection in host.connections:
            if not is_loopback(connection.local_address):
                having.setdefault(connection.local_address, set()).add(host.name)
    everything = [connection for host in hosts for connection in host.connections]
    quiet = (c for c in everything if c.state == "ESTABLISHED" and not c.send_queue and not c.retransmits)
    return Cuts(
        connections=tuple(filter(_is_cut, everything)),
        quiet=tuple(c for c in quiet if not is_loopback(c.local_address)),
        owners={address: next(iter(names)) for address, names in having.items() if len(names) == 1},
    )


def _is_cut(connection: Connection) -> bool:
    if connection.state == "SYN_SENT":
        return connection.retransmits > 0
    return connection.send_queue > 0 and connection.retransmits >= OFTEN


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)
