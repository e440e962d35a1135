"""The condition that led the culprit alone to a wait for something that is no collective, where no rule has told it.

The first of these that tells one:

1. what ended the thread or the child that was to end the wait               ``ended_helpers``
2. the likeliest of the reasons, where it stands out                         ``likeliest``
3. of a key of the store: what decides whether it is set                     ``polled.set_elsewhere``
4. of a lock: by which way who takes it lets it go                           ``source.locks``
5. the conditions over the culprit's stack, which others have not passed     ``deciding.passed_on_its_way``
6. the conditions under which it alone has run lines                         ``left_traces.left_by_culprits``
7. the likeliest of the reasons, whatever it is                              ``likeliest``

Of a collective, it is the loop that chooses what the call is given, if that has no order: ``deciding``.
"""

from __future__ import annotations

from hangdoc.diagnosis.blame.thread_blame import ThreadWait
from hangdoc.diagnosis.causes.deciding import chosen_without_order, passed_on_its_way
from hangdoc.diagnosis.causes.ended_helpers import ended_helper
from hangdoc.diagnosis.causes.left_traces import left_by_culprits
from hangdoc.diagnosis.causes.likeliest import likely_reason
from hangdoc.diagnosis.causes.phrases import line_of
from hangdoc.diagnosis.causes.polled import set_elsewhere
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation, OutsideWait
from hangdoc.diagnosis.frames.landmarks import below_user
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import guards, split_at_loop
from hangdoc.model.kinds import ActivityKind, Confidence
from hangdoc.model.message import Condition, Joined, Message, conditions_in, joined
from hangdoc.model.process import Frame


def what_led_there(case: Case, blame: Blame[Explanation]) -> Message:
    """What decided about a wait that is no collective's, or what a collective is given; '' where nothing is known."""
    found, culprits = blame.found, blame.culprits
    if isinstance(found, ThreadWait) and culprits == found.waiting:
        return left_by_culprits(case, blame)
    if isinstance(found, ThreadWait):
        return (
            ended_helper(case, culprits)
            or left_by_culprits(case, blame)
            or ended_helper(case, culprits, undecided=True)
        )
    if not isinstance(found, OutsideWait):
        return chosen_without_order(case, case.activities[culprits[0]].stack)[0]
    if ended := ended_helper(case, culprits):
        return ended
    # What a certain verdict says is seen, and not the likeliest.
    likely = likely_reason(case, blame) if not (blame.proved and blame.confidence == Confidence.CERTAIN) else None
    if likely is not None and likely.stands_out:
        return likely.words
    found_there = _key_set_by(case, culprits[0]) or passed_on_its_way(case, blame)
    found_there = found_there or left_by_culprits(case, blame) or (likely.words if likely is not None else "")
    if any(conditions_in(found_there)):
        return found_there
    return joined(ended_helper(case, culprits, undecided=True), found_there)


def is_around_wait(case: Case, blame: Blame[Explanation], condition: Condition) -> bool:
    """True for a loop or a condition around the very line at which a culprit waits: there it goes round, or tries
    again, and what led there is another one.

    Example: `while not path.exists(): ⏎ time.sleep(1)` → the `while`.
    """
    for rank in blame.culprits:
        where = next(iter(user_stack(case.activities[rank].stack)), None)
        tree = case.sources.function(where.file, where.line) if where is not None else None
        around = guards(tree, where.line) if tree is not None and where is not None else []
        lines = {(where.file, guard.line) for guard in split_at_loop(around)[1]} if where is not None else set()
        if (condition.file, condition.line) in lines:
            return True
    return False


def _key_set_by(case: Case, rank: int) -> Message:
    """What decides whether the key of the store is set for which the rank waits."""
    waits = {(where.file, where.line): where for where in _waits_for_keys(case, rank) if where is not None}
    where = next(iter(waits.values()), None)
    found = set_elsewhere(case.sources, where) if where is not None and len(waits) == 1 else None
    if found is None:
        return ""
    at, deciding = found
    if case.activities[rank].kind != ActivityKind.STORE_WAIT:
        told: Message = ["at ", line_of(where), " it waits for a key of the store, and the call that sets such a key ("]
        return [told, line_of(at), ") depends on ", Joined(deciding, " and ")]
    return ["the call that sets such a key (", line_of(at), ") depends on ", Joined(deciding, " and ")]


def _waits_for_keys(case: Case, rank: int) -> list[Frame | None]:
    """Where the rank waits for a key of the store; where it waits for threads, those of them that are in native code.

    Example: main() is over, Python joins a pool's threads, and one of these is in `store.wait(keys)` → that line.
    """
    activity, process = case.activities[rank], case.ranks[rank].process
    look = process.last if process is not None else None
    if activity.kind not in (ActivityKind.SHUTTING_DOWN, ActivityKind.LOCK) or look is None:
        return [activity.where] if activity.kind == ActivityKind.STORE_WAIT else []
    stacks = [thread.frames for thread in look.threads if look.main is None or thread.tid != look.main.tid]
    return [user_stack(stack)[0] for stack in stacks if user_stack(stack) and not below_user(stack)]
