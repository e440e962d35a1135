"""A rank of a circle that has come to its message by a way that it never went before, and what chose that way.

Example: each round of rank 2 gave up, took down, gave down and took up; now it gives down right after it took up:

    phases = [self.give_up_take_down, self.give_down_take_up]
    if self.drift() > self.tolerance:
        phases.reverse()
    for phase in phases:
        phase()

→ it is rank 2 that left the order of its rounds, by `for phase in phases:`.
"""

from __future__ import annotations

from itertools import pairwise

from hangdoc.diagnosis.bounds import FEWEST
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import fork, site_of, user_stack
from hangdoc.diagnosis.source.guards import loops_around
from hangdoc.model.message import Condition
from hangdoc.model.process import Stack


def goes_another_way(case: Case, rank: int) -> bool | None:
    """True if what the rank issued last never came after what it issued before that; False if it did; None where its
    messages do not tell.

    Examples, by lines: 25, 29, 33, 37, 25, 29, 33, 37, 33 → True, and with 25 at the end → False.
    """
    stacks = _issued(case, rank)
    sites = [site_of(stack) for stack in stacks]
    if len(sites) <= FEWEST or sites[:-1].count(sites[-1]) < FEWEST:
        return None
    return (sites[-2], sites[-1]) not in set(pairwise(sites[:-1]))


def order_chosen_by(case: Case, rank: int) -> list[Condition]:
    """The innermost loop, in the function that both of its last two messages came from, whose items choose between
    them; [] where there is none."""
    stacks = _issued(case, rank)
    way = fork(stacks[-1], stacks[-2], frames_of=user_stack) if len(stacks) > 1 else None
    for frame in reversed(way.mine[: way.common]) if way is not None else ():
        loops = loops_around(case.sources.function(frame.file, frame.line), frame.line)
        if loops:
            return [Condition(loops[-1].condition, frame.file, loops[-1].line)]
    return []


def _issued(case: Case, rank: int) -> list[Stack]:
    """The stacks of the rank's messages, in their order; [] where some are forgotten."""
    journal = case.ranks[rank].journal
    if journal is None or not journal.has_all_messages:
        return []
    return [journal.stack(message.stack) for message in journal.point_to_points]
