"""HD505: actors wait for methods of each other, and each runs one method at a time. One of them may be no rank."""

from __future__ import annotations

from hangdoc.diagnosis.blame.wait_cycle import WaitCycle
from hangdoc.diagnosis.causes.call_conditions import conditions_of_call
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, OutsideWait
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.state.actor_calls import asks_back, awaited_methods
from hangdoc.model.kinds import WaitReason
from hangdoc.model.message import Does, Joined, Ranks, joined, sentence


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


@cause("HD505", explains=OutsideWait, order=364)
def asked_back_while_busy(case: Case, blame: Blame[OutsideWait]) -> Finding | None:
    """HD505: an actor waits for a method of an actor that is no rank, and that asks actors of its own class back.

    Example: a learner in train() waits for sample() of the replay actor, of `if stale: ⏎
    ray.get(self.learner.priorities.remote(stale))`; priorities() is a method of the learner's class.
    """
    culprits = blame.culprits
    first = case.activities[culprits[0]]
    running = user_stack(first.stack)
    asked = awaited_methods(first.where, case.sources) if first.reason == WaitReason.TASK else []
    back = asks_back(asked[0], plain(running[-1].function), case.sources) if len(asked) == 1 and running else None
    if back is None:
        return None
    at, method = back
    deciding = conditions_of_call(case.sources, at, ())
    return Finding(
        "HD505",
        sentence(
            [
                [
                    Does(culprits, "waits", "wait"),
                    " at ",
                    place(first.where),
                    f" for the answer of {asked[0]}(), which ",
                ],
                ["asks an actor of the same class back, at ", place(at), f": {method}() can run only when "],
                f"{plain(running[-1].function)}() has returned",
            ],
            where_they_wait(case, tuple(r for r in sorted(case.activities) if r not in culprits)),
        ),
        joined(
            "an actor runs one method at a time",
            [Joined(deciding, " and "), f" decides whether {asked[0]}() asks back"] if deciding else "",
        ),
        f"give {asked[0]}() what it asks for as an argument, or let the actor run several methods at once "
        "(`max_concurrency`, or async methods)",
        decided_at=deciding[-1] if deciding else None,
    )
