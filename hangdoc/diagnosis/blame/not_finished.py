"""A rank serves several connections until each is done with, and waits for those of some ranks, who are past that.

Example: rank 0 is in `poller.select()` of `while gone < producers:`, and of the connections that it watches all but
those of ranks 2 and 3 have been closed or taken out; all ranks but rank 0 are in the broadcast → ranks 2 and 3.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.blame.unsent_message import owners_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.names import names
from hangdoc.model.kinds import COMMUNICATING, Confidence
from hangdoc.model.wording import ranks_text


@dataclass(frozen=True, slots=True)
class NotFinished(Explanation):
    """The ``server`` watches connections of the culprits alone, and these wait for it elsewhere, like ``done``, with
    whom it is done."""

    server: int
    done: tuple[int, ...]


def not_finished(case: Case, server: int) -> Blame[NotFinished] | None:
    """The blame of the ranks whose connections are open; None where those of all are, or one of them does anything but
    wait for the server."""
    process = case.ranks[server].process
    many = names("wait_for_many", of="kernel")
    files = [file for file in process.blocking_files if file.operation in many] if process is not None else []
    sockets = [file for file in files if file.target.startswith("socket:")]
    # Of one alone, the rank may be its client.
    watched = {rank for file in sockets for rank in owners_of(case, server, file)} if len(sockets) > 1 else set()
    others = case.seen - {server}
    waiting = {r for r in others if case.activities[r].kind in COMMUNICATING and server in case.graph.on(r)}
    done = tuple(sorted(others - watched))
    if case.hidden or waiting != others or not 0 < len(watched & others) < len(others):
        return None
    open_ended = tuple(sorted(watched & others))
    sure = f"of the connections that rank {server} watches, those of {ranks_text(open_ended)} alone are still open"
    return Blame(NotFinished(server, done), open_ended, confidence=Confidence.LIKELY, sure=sure)
