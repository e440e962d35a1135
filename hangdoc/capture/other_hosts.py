"""What to run to see a whole job of which this host shows a part."""

from __future__ import annotations

from collections.abc import Mapping

from hangdoc.capture.find.job_key import format_key
from hangdoc.capture.safe.advice import once_more
from hangdoc.model.launch import is_loopback, number, on_many_hosts
from hangdoc.model.same_job import OTHER_HOSTS, variables_of, with_notes
from hangdoc.model.snapshot import JobSnapshot, Unavailable

_SYSTEM_PORTS = 1024
"""Servers below it are no ranks: a rank may also talk to a web server."""
_MOST_NAMED = 64
"""Hosts that are named on a command line. Judgement."""


def with_way_to_the_others(snapshot: JobSnapshot, pid: int) -> JobSnapshot:
    """``snapshot``, with a note that gives the command that sees all ranks, if other hosts have some of them."""
    seen = {rank.rank for rank in snapshot.ranks if rank.process is not None or rank.exit is not None}
    environments = [dict(rank.environment) for rank in snapshot.ranks if rank.process is not None]
    world = snapshot.world_size or 0
    if len(seen) >= world or not any(on_many_hosts(environment, world) for environment in environments):
        return snapshot
    remedy = _command(snapshot, pid, environments[0])
    return with_notes(snapshot, [Unavailable(OTHER_HOSTS, "only this host was looked at", remedy)])


def _command(snapshot: JobSnapshot, pid: int, environment: Mapping[str, str]) -> str:
    """Of a Slurm job the command that asks Slurm; else with the addresses that the ranks here are connected to."""
    if environment.get("SLURM_JOB_ID", "").isdecimal():
        return f"see the whole job: `{once_more('attach --slurm ' + environment['SLURM_JOB_ID'])}`"
    found = addresses_of_others(snapshot)
    hosts = number(environment.get("GROUP_WORLD_SIZE")) or number(environment.get("SLURM_NNODES")) or 0
    if not found or len(found) > _MOST_NAMED:
        key = format_key(variables_of(snapshot))
        ways = f"see the whole job: `{once_more(f'attach {pid} --hosts NAMES')}` with the names of its hosts"
        return f"{ways}; or on each: `hangdoc capture --job {key} > HOST.hangdoc`" if key else ways
    command = once_more(f"attach {pid} --hosts {','.join(found)}")
    missing = hosts - 1 - len(found)
    return f"see the whole job: `{command}`" + (f" (and name the other {missing} hosts too)" if missing > 0 else "")


def addresses_of_others(snapshot: JobSnapshot) -> list[str]:
    """The addresses of other hosts that the job's processes are connected to, but for servers of the system's."""
    connections = [connection for host in snapshot.hosts for connection in host.connections]
    own = {_plain(connection.local_address) for connection in connections}
    found = {
        _plain(connection.remote_address)
        for connection in connections
        if connection.remote_port >= _SYSTEM_PORTS and connection.state in ("ESTABLISHED", "CLOSE_WAIT")
    }
    return sorted(address for address in found - own if address and not is_loopback(address))


def _plain(address: str) -> str:
    """'::ffff:10.0.0.7', IPv4 on a socket of IPv6, as '10.0.0.7'."""
    return address.removeprefix("::ffff:")
