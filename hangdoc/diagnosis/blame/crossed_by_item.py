"""All ranks wait at one line, in groups that its frames show, and a loop's item chose each rank's group.

Nobody is past that line, so no call is missing: some ranks took the items in another order. Example: ranks 0 and 3 are
in the all_reduce of (0, 2) and of (1, 3), ranks 1 and 2 in that of (0, 1) and of (2, 3), all of them in `for name in
sorted(self.pending, key=self.backlog): ⏎ all_reduce(x, group=self.groups[name])`.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.blame.crossed_dimensions import Dimension, dimension_of
from hangdoc.diagnosis.calls.stack_calls import group_shown
from hangdoc.diagnosis.condition.elsewhere.origin import ByItem, chosen_by_item
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.stacks import site_of
from hangdoc.model.kinds import ActivityKind, Confidence
from hangdoc.model.wording import ranks_text


@dataclass(frozen=True, slots=True)
class CrossedByItem(Explanation):
    """The culprits are in groups like ``mine``, the others in groups like ``theirs``, as the item of a loop chose."""

    chosen: ByItem
    mine: tuple[int, ...]
    theirs: tuple[int, ...]


def crossed_by_item(case: Case) -> Blame[CrossedByItem] | None:
    """The blame of the side that fewer ranks are on, of either where they are equally many; None where the calls are
    not of two kinds of groups, or one of them may complete."""
    calling = [a for a in case.activities.values() if a.kind == ActivityKind.IN_COLLECTIVE and not a.moving]
    if case.programs or case.hidden or len(calling) < len(case.activities):
        return None
    if len({site_of(activity.stack) for activity in calling}) != 1:
        return None
    shown = {a.rank: group[1] for a in calling if (group := group_shown(a.stack)) is not None and a.rank in group[1]}
    chosen = chosen_by_item(case.sources, calling[0].stack) if len(shown) == len(calling) else None
    sides: dict[Dimension, list[int]] = {}
    for rank, members in sorted(shown.items()):
        sides.setdefault(dimension_of("", members), []).append(rank)
    if chosen is None or len(sides) != 2 or any(_is_complete(members, shown) for members in shown.values()):
        return None
    fewer, more = sorted(map(tuple, sides.values()), key=len)
    if any({one, other} <= set(shown[one]) & set(shown[other]) for one in fewer for other in more):
        return None  # two ranks that are in both groups show more
    found = CrossedByItem(chosen, shown[fewer[0]], shown[more[0]])
    sure = f"the groups are those that the calls' frames hold; all ranks are at one line, {ranks_text(fewer)} in others"
    if len(fewer) < len(more):
        return Blame(found, fewer, proved=True, confidence=Confidence.LIKELY, sure=sure)
    return Blame(found, fewer, (more,), proved=True, sure=f"{sure}; the data does not show which order is right")


def _is_complete(members: tuple[int, ...], shown: dict[int, tuple[int, ...]]) -> bool:
    """True if all members of the group are in a call of it."""
    return all(shown.get(member) == members for member in members)
