"""Of ranks that others wait for: one that waits for a connection, and one that tries in vain to make one.

Example: rank 0 is in `server.accept()`, rank 1 in the `except OSError:` of a loop around
`socket.create_connection(address)`, and rank 2 waits for both → rank 1, whose address is another one.
"""

from __future__ import annotations

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.polls import calls_in_its_loop
from hangdoc.model.kinds import ActivityKind


def without_servers(case: Case, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """The ranks without those that wait for a connection, where others of them try again and again to make one."""
    clients = [rank for rank in ranks if _tries_to_connect(case, rank)]
    servers = [rank for rank in ranks if _accepts(case, rank)]
    return tuple(rank for rank in ranks if rank not in servers) if clients and servers else ranks


def _accepts(case: Case, rank: int) -> bool:
    process = case.ranks[rank].process
    return process is not None and any(
        file.operation in names("accept", of="kernel") for file in process.blocking_files
    )


def _tries_to_connect(case: Case, rank: int) -> bool:
    """True if the rank sleeps in a loop that tries to connect."""
    activity = case.activities[rank]
    asleep = activity.kind is ActivityKind.SLEEPING
    return asleep and calls_in_its_loop(case.sources, activity.stack, names("connects"))
