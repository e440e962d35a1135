"""Without a journal: one call for each rank, the one its stack shows it in.

The same alignment works on it. What it cannot show is history, so nothing found this way is ever certain.
"""

from __future__ import annotations

from hangdoc.diagnosis.sequences import GroupHistory, Token, site_of
from hangdoc.model.diagnosis import Activity

UNKNOWN_GROUP = "process group"


def from_stacks(activities: dict[int, Activity], kinds: tuple[str, ...] = ("in-collective",)) -> list[GroupHistory]:
    """The collectives that the ranks stand in, as one history of one call; empty where fewer than two do."""
    standing = {rank: a for rank, a in activities.items() if a.kind in kinds and not a.moving}
    if len(standing) < 2:
        return []
    members = tuple(sorted(activities))
    key = (UNKNOWN_GROUP, members)
    history = GroupHistory(key, members, UNKNOWN_GROUP, inferred=True)
    history.blind = tuple(rank for rank in members if rank not in standing)
    for rank, activity in standing.items():
        history.tokens[rank] = [
            Token(
                rank=rank,
                group=key,
                sequence=1,
                op=activity.op or activity.text,
                site=tuple(
                    (file, line, function.rsplit(".", 1)[-1]) for file, line, function in site_of(activity.stack)
                ),
                sizes=None,
                dtypes=(),
                pending=True,
                order=0,
                created_ns=0,
                stack=activity.stack,
            )
        ]
    return [history]
