"""HD101 of a rank that has left the program early and is still exiting: the others wait in a call that it skipped."""

from __future__ import annotations

from hangdoc.diagnosis.causes.exits import early_end
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, OutsideWait
from hangdoc.model.kinds import COMMUNICATING, ActivityKind
from hangdoc.model.message import Ranks, joined, sentence


@cause("HD101", explains=OutsideWait, order=385)
def left_early(case: Case, blame: Blame[OutsideWait]) -> Finding | None:
    """HD101: an early return led past the call of the others. What keeps the process alive afterwards is no cause: once
    it exits, the others fail.

    Example: `if not chosen: ⏎ return` in main(), whose next call is the all_reduce of the others, and the thread
    `heartbeat`, which is no daemon.
    """
    others = tuple(rank for rank in others_of(case, blame) if case.activities[rank].kind in COMMUNICATING)
    if not others or not blame.culprits or not all(_exits(case, rank) for rank in blame.culprits):
        return None
    early = early_end(case, blame)
    if early is None:
        return None
    culprits = blame.culprits
    skipped = case.activities[others[0]].op or "call"
    after = f"{case.activities[culprits[0]].text}; once the process exits, the others fail instead of waiting"
    return Finding(
        "HD101",
        sentence(
            [Ranks(culprits), " left the program early, without the ", skipped, " that follows"],
            where_they_wait(case, others),
        ),
        joined(
            [early, " ends it before the line where the others wait"],
            ["the process of ", Ranks(culprits[:1]), f" is still there, {after}"],
        ),
        "let every rank run to the same end: no early return or exit before the last collective",
        decided_at=early,
    )


def _exits(case: Case, rank: int) -> bool:
    """True if the rank's program is over, by no exception, and its process is not."""
    journal = case.ranks[rank].journal
    failed = journal is not None and bool(journal.failure)
    return case.activities[rank].kind is ActivityKind.SHUTTING_DOWN and not failed
