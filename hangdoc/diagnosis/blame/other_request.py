"""All ranks wait for an answer of one service, and a few of them for another one than the rest.

Example: ranks 0, 2 and 3 are in `meeting.arrive(f"better-{epoch}")`, rank 1 in the `else:` of that condition, in
`meeting.arrive(f"kept-{epoch}")`; the service answers when all have come to one of them → rank 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.blame.missing_request import MissingRequest, without_its_call
from hangdoc.diagnosis.blame.unsent_message import owners_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.source.guards import CONDITIONS
from hangdoc.model.kinds import ActivityKind, Confidence
from hangdoc.model.wording import ranks_text

_FEWEST = 3
"""Ranks of which the smaller side can be told; of two, either may be it."""


@dataclass(frozen=True)
class OtherRequest(MissingRequest):
    """The ``waiting`` wait for an answer of rank ``server``, and the culprits for another one."""

    server: int = -1


def other_request(case: Case) -> Blame[OtherRequest] | None:
    """The blame of the smaller side; None where a rank does anything else, the sides are as many, or nothing but the
    rank's number decides between them."""
    ranks = tuple(sorted(case.seen))
    if case.hidden or len(ranks) < _FEWEST or any(case.activities[rank].moving for rank in ranks):
        return None
    servers = {server for rank in ranks for server in _asked(case, rank)}
    places: dict[tuple[str, int], list[int]] = {}
    for rank in ranks:
        where = case.activities[rank].where
        if where is None or len(_asked(case, rank)) != 1:
            return None
        places.setdefault((where.file, where.line), []).append(rank)
    few, *rest = sorted(map(tuple, places.values()), key=len)
    if len(servers) != 1 or len(rest) != 1 or len(few) == len(rest[0]):
        return None
    (server,) = servers
    found = without_its_call(case, few, rest[0], f"request to rank {server}")
    point = found.branch_point if found is not None else None
    if found is None or point is None or point.rank_like or point.guard.kind not in CONDITIONS:
        return None
    sure = f"all ranks wait for answers of rank {server}, and {ranks_text(few)} alone for another one"
    more = OtherRequest(found.alignment, found.branch_points, found.late, rest[0], found.called, None, server)
    return Blame(more, few, confidence=Confidence.LIKELY, sure=sure)


def _asked(case: Case, rank: int) -> set[int]:
    """The ranks whose process has the other end of the socket from which the rank's main thread waits for data."""
    process = case.ranks[rank].process
    if process is None or case.activities[rank].kind != ActivityKind.IO:
        return set()
    files = [file for file in process.blocking_files if file.target.startswith("socket:")]
    return {owner for file in files for owner in owners_of(case, rank, file)}
