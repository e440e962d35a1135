"""Ranks that exchange messages in pairs, round by round: which of them has chosen another partner than its own.

Who has gone past a round had its partner in it. Of those that are still in the earliest round, one that names a rank
which is past it, while another one in that round names it, has chosen wrongly. Example: ranks 0 and 2 are in round 7,
all others in later ones, rank 0 has chosen rank 2, and rank 2 has chosen rank 4 → rank 2.

A rank that has gone past it by a message meant for another round has its place in the histories: of the choices of all
rounds, those that cannot both be right share the rank that chose wrongly. Example: in round 5, rank 0 has chosen 3,
rank 3 has chosen 0, rank 1 has chosen 2, and rank 2 has chosen 3 → rank 2.
"""

from __future__ import annotations

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.message_calls import issued_peers
from hangdoc.diagnosis.source.syntax import enclosing_function
from hangdoc.model.diagnosis import Activity
from hangdoc.model.operations import message_way


def is_both_ways(case: Case, activity: Activity) -> bool:
    """True if the rank has issued a send to its partner and a recv from it, and nothing else in that round."""
    journal = case.ranks[activity.rank].journal
    if journal is not None and journal.is_history:
        pending = {(m.op, m.peer) for m in journal.point_to_points if not m.completed}
        return pending == {("send", activity.peer), ("recv", activity.peer)}
    frame = next(iter(user_stack(activity.stack)), None)
    tree = case.sources.function(frame.file, frame.line) if frame is not None else None
    if frame is None or tree is None:
        return False
    given = issued_peers(enclosing_function(tree, frame.line))
    return len({message_way(kind) for kind, _ in given}) == len(given) > 1 and len({peer for _, peer in given}) == 1
