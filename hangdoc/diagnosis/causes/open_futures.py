"""HD505: a rank waits for a future of its own that nothing has completed."""

from __future__ import annotations

from hangdoc.diagnosis.causes.ending_calls import set_by_hand
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, OutsideWait
from hangdoc.diagnosis.frames.landmarks import below_user, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.sources import UserCall
from hangdoc.diagnosis.state.activity import pending_call, pending_p2p
from hangdoc.model.message import Does, Joined, joined, sentence
from hangdoc.model.process import Frame

_MOST_PLACES = 3
"""Lines that a sentence names; chosen by hand."""


@cause("HD505", explains=OutsideWait, order=398)
def never_completed(case: Case, blame: Blame[OutsideWait]) -> Finding | None:
    """HD505: the culprit has no call under way, and waits for a future whose result the program sets itself.

    Example: `checked = Future()`, a callback that calls `checked.set_result(mean)` unless it raises, and
    `checked.wait()`.
    """
    rank = blame.culprits[0]
    stack, journal = case.activities[rank].stack, case.ranks[rank].journal
    below = below_user(stack)
    waits = bool(below) and below[-1].file.endswith(names("torch_future_file")) and plain(below[-1].function) == "wait"
    calls = case.sources.user_calls("set_result")
    if not waits or not calls or journal is None:
        return None
    if pending_call(case.programs.get(rank), stack) is not None or pending_p2p(case.ranks[rank], stack) is not None:
        return None
    lines = [place(_line_of(call)) for call in calls[:_MOST_PLACES]]
    return Finding(
        "HD505",
        sentence(
            [
                [Does(blame.culprits, "waits", "wait"), " at ", place(case.activities[rank].where), " for a future "],
                ["that nothing has completed: its result is set at ", Joined(lines, " or ")],
            ],
            where_they_wait(case, others_of(case, blame)),
        ),
        joined(
            [Does(blame.culprits, "has", "have"), " no call of torch.distributed under way that could still end it"],
            "an exception in a callback of a future is only logged, and what the callback was to set stays open",
            set_by_hand(case.sources, stack),
        ),
        ["set the result, or `set_exception`, on every way out of ", Joined(lines, " and "), " (`try` … `except`)"],
    )


def _line_of(call: UserCall) -> Frame:
    return call.at
