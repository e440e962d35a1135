"""What we call it and how to fix it: one module per family of the catalogue.

A rule looks at the case and the blame, never at names of files or programs, and answers with a ``Finding`` or None.
The first rule that answers names the cause; none of them changes who is to blame.
"""

from __future__ import annotations

from hangdoc.diagnosis.case import Case
from hangdoc.diagnosis.causes import (
    busy,
    circles,
    detours,
    gone,
    implicit,
    launching,
    locked,
    network,
    ordering,
    pointed,
    sequences,
    starting,
)
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.culprit import Blame

# The order is the priority: what explains the others' waiting comes first.
_RULES = (
    gone.stopped,
    gone.aborted_on_sizes,
    gone.aborted_at_exit,
    gone.killed,
    starting.wrong_rendezvous,
    starting.never_joined,
    starting.new_group_not_by_all,
    starting.relaunched_worker,
    gone.exited,
    launching.parted_before_launch,
    sequences.differing_arguments,
    sequences.two_threads,
    detours.asynchronous_code,
    implicit.ended_its_stage,
    implicit.another_stage,
    implicit.unused_parameters,
    sequences.uneven_iterations,
    detours.after_an_exception,
    ordering.order_across_groups,
    detours.shut_down_early,
    ordering.swapped_operation,
    implicit.implicit_collective,
    sequences.collective_on_some_ranks,
    pointed.wrong_tag,
    pointed.wrong_peer,
    circles.crossed_partners,
    circles.uneven_messages,
    circles.cycle,
    pointed.missing_partner,
    network.partition,
    network.all_arrived,
    locked.held_over_a_wait,
    locked.held_over_a_call,
    locked.deadlocked_in_itself,
    locked.shared_lock,
    busy.straggler,
    busy.sleeping,
    starting.key_never_set,
    busy.blocked_outside,
)


def name_cause(case: Case, blame: Blame) -> Finding | None:
    """The first cause whose pattern holds, None for a hang that fits nothing in the catalogue."""
    for rule in _RULES:
        finding = rule(case, blame)
        if finding is not None:
            return finding
    return None
