"""HD505: actors wait for methods of each other, and each runs one method at a time."""

from __future__ import annotations

from hangdoc.diagnosis.blame.wait_cycle import WaitCycle
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.state.actor_calls import awaited_methods
from hangdoc.model.message import Does, Ranks, joined, sentence


@cause("HD505", explains=WaitCycle, order=318)
def asked_while_busy(case: Case, blame: Blame[WaitCycle]) -> Finding | None:
    """HD505: an actor waits for the answer of a method of an actor that waits for it.

    Example: two players are in match(), and each asks the other for act().
    """
    asking = tuple(sorted(set(case.busy_actors) & case.graph.stuck))
    methods = awaited_methods(case.activities[asking[0]].where, case.sources) if asking else []
    if not asking or not methods:
        return None
    first = case.activities[asking[0]]
    asked = tuple(sorted({rank for rank in asking for rank in case.busy_actors[rank]}))
    running = plain(user_stack(case.activities[asked[0]].stack)[-1].function)
    rest = tuple(r for r in sorted(case.activities) if r not in asking)
    return Finding(
        "HD505",
        sentence(
            [
                [Does(asking, "waits", "wait"), " at ", place(first.where), f" for the answer of {methods[0]}(), "],
                ["which ", "each" if asked == asking else Ranks(asked), f" can run only when {running}() has returned"],
            ],
            where_they_wait(case, rest),
        ),
        joined(
            "an actor runs one method at a time",
            [f"{running}() of ", Ranks(asked), " waits, directly or not, for ", Ranks(asking)]
            if asked != asking
            else "",
        ),
        f"give the actors a thread more (`max_concurrency=2`, or `async def {methods[0]}`), or let the driver call "
        f"{methods[0]}() and hand its result to {running}()",
    )
