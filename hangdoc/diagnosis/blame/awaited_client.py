"""Of ranks that others wait for: one that waits for a connection, and one that tries in vain to make one.

Example: rank 0 is in `server.accept()`, rank 1 in the `except OSError:` of a loop around
`socket.create_connection(address)`, and rank 2 waits for both → rank 1, whose address is another one.
"""

from __future__ import annotations

import ast

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.polls import polling_loop
from hangdoc.diagnosis.source.syntax import last_name
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
    where = next(iter(user_stack(activity.stack)), None)
    tree = case.sources.function(where.file, where.line) if where is not None else None
    loop = polling_loop(tree, where.line) if tree is not None and where is not None else None
    if loop is None or activity.kind is not ActivityKind.SLEEPING:
        return False
    return any(isinstance(n, ast.Call) and last_name(n.func) in names("connects") for n in ast.walk(loop))
