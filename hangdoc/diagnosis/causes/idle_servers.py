"""No cause: a rank that leads the others by commands has no request to pass on."""

from __future__ import annotations

from hangdoc.diagnosis.blame.idle_server import Feeder, waits_for_requests
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import at, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, OutsideWait
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.model.message import Message, joined, sentence


@cause(explains=OutsideWait, order=335)
def nothing_to_do(case: Case, blame: Blame[OutsideWait]) -> Finding | None:
    """The rank waits for a request, and the others for its next command.

    Example: rank 0 in `command = inbox.get()`, which a thread in `sock.accept()` fills; the others in broadcast.
    """
    rank = blame.culprits[0] if len(blame.culprits) == 1 else -1
    feeder = waits_for_requests(case, rank)
    if feeder is None:
        return None
    return Finding(
        "",
        sentence(
            [f"rank {rank} waits for a request", at(case.activities[rank].where)],
            where_they_wait(case, others_of(case, blame)),
        ),
        joined(
            _through(feeder),
            "no request has come",
        ),
        "see whether a request was sent; if PyTorch's timeout ends the wait of the others, let the rank send them a "
        "command that does nothing now and then",
    )


def _through(feeder: Feeder) -> Message:
    if feeder.thread is None:
        return f"it is {feeder.text}"
    own = user_stack(feeder.thread.frames)
    return [f"its thread `{feeder.thread.name}`, which hands it the requests, is {feeder.text}"] + (
        [" at ", place(own[0])] if own else []
    )
