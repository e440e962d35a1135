"""A service answers when each of its clients has sent something, and a client that has sent nothing is elsewhere.

Example: ranks 0, 1 and 3 wait at one line for data from rank 0, whose thread `coordinator` waits in poll for data of
rank 2's connection; rank 2 has left its step early and is in the next all_reduce → rank 2. Whatever the protocol is,
who serves shows by its system call whom it waits for.
"""

from __future__ import annotations

from hangdoc.diagnosis.context import Case
from hangdoc.model.process import OpenFile


def owners_of(case: Case, rank: int, file: OpenFile) -> list[int]:
    """The ranks of the same host whose process holds the other end."""
    host = case.ranks[rank].host
    same = {s.process.pid: r for r, s in case.ranks.items() if s.process is not None and s.host == host}
    return [same[pid] for pid in file.peers if pid in same]
