"""The condition that led the culprit alone to a wait for something that is no collective, where no rule has told it.

The first of these that tells one:

1. what ended the thread or the child that was to end the wait               ``ended_helpers``
2. what would end it, and what decides whether that is done                  ``ending_calls``
3. the conditions over the culprit's stack, which others have not passed     ``deciding.passed_on_its_way``
4. the conditions under which it alone has run lines, or left something      ``left_traces.left_by_culprits``

Of a collective, it is the loop that chooses what the call is given, if that has no order: ``deciding``.
"""

from __future__ import annotations

from hangdoc.diagnosis.blame.thread_blame import ThreadWait
from hangdoc.diagnosis.blame.wait_cycle import WaitCycle
from hangdoc.diagnosis.causes.deciding import chosen_without_order, passed_on_its_way
from hangdoc.diagnosis.causes.ended_helpers import ended_helper
from hangdoc.diagnosis.causes.ending_calls import what_would_end_it
from hangdoc.diagnosis.causes.left_traces import left_by_culprits
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation, OutsideWait
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import guards, split_at_loop
from hangdoc.model.message import Condition, Message, conditions_in, joined


def what_led_there(case: Case, blame: Blame[Explanation]) -> Message:
    """What decided about a wait that is no collective's, or what a collective is given; '' where nothing is known."""
    found, culprits = blame.found, blame.culprits
    if isinstance(found, ThreadWait) and culprits == found.waiting:
        return left_by_culprits(case, blame)
    if isinstance(found, ThreadWait):
        return (
            ended_helper(case, culprits)
            or what_would_end_it(case, culprits[0], found.chain)
            or left_by_culprits(case, blame)
            or ended_helper(case, culprits, undecided=True)
        )
    if isinstance(found, WaitCycle) and found.lock_holders:
        return left_by_culprits(case, blame) or passed_on_its_way(case, blame)
    if not isinstance(found, OutsideWait):
        return chosen_without_order(case, case.activities[culprits[0]].stack)[0]
    if ended := ended_helper(case, culprits):
        return ended
    told = what_would_end_it(case, culprits[0])
    if any(conditions_in(told)):
        return told
    led = passed_on_its_way(case, blame) or left_by_culprits(case, blame)
    if any(conditions_in(led)):
        return joined(told, led)
    return joined(ended_helper(case, culprits, undecided=True), told, led)


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
