"""The order of the reasons: the likeliest first, as the evidence for each is weighed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hangdoc.diagnosis.program.items import Predicate
from hangdoc.diagnosis.reason.evidence import BEHIND, NOTHING
from hangdoc.diagnosis.reason.judged import Reason
from hangdoc.diagnosis.reason.known import Strength
from hangdoc.diagnosis.reason.relays import handed_on
from hangdoc.diagnosis.weighing import shares, weights_of


def ranked(weighed: Mapping[Reason, frozenset[str]]) -> list[Reason]:
    """The likeliest first, of those with what speaks for them; none where it is likelier that none of them is one. What
    is seen to have decided the likeliest stands before it; not a loop, which only hands on its items.

    Example: `if batch.empty:` with a share of 0.8 before `for batch in loader:` with 0.1; nothing has 0.07.
    """
    found = shares(dict(enumerate((*weighed.values(), NOTHING))), weights_of(__package__))
    several = [replace(each, share=found[place]) for place, each in enumerate(weighed)]
    several.sort(key=lambda each: -each.share)  # the nearest first of those that are equal
    tests = any(isinstance(each.item, Predicate) for each in several)
    values = [each for each in several if each.strength > Strength.UNKNOWN]
    if not several or several[0].share < found[len(several)]:
        return [] if tests else values  # without a test, values that differ are all that there is
    kinds = {each.item: evidence for each, evidence in weighed.items()}
    first = several[0].item
    behind = (each for each in several if not (isinstance(each.item, Predicate) and each.item.targets))
    roots = (each for each in behind if BEHIND in kinds[each.item] and first in each.path and handed_on(first, each))
    root = next(roots, several[0])
    return [replace(root, share=several[0].share), *(each for each in several if each is not root)]
