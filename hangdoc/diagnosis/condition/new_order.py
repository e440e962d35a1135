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
from hangdoc.diagnosis.frames.stacks import site_of
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


def _issued(case: Case, rank: int) -> list[Stack]:
    """The stacks of the rank's messages, in their order; [] where some are forgotten."""
    journal = case.ranks[rank].journal
    if journal is None or not journal.has_all_messages:
        return []
    return [journal.stack(message.stack) for message in journal.point_to_points]
