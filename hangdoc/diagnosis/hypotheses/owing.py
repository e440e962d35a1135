"""Who owes what others need, where that is no call: a key, a file, an item, an answer, a lock."""

from __future__ import annotations

from hangdoc.diagnosis.hypotheses.suspects import Suspects
from hangdoc.diagnosis.needs.need import Reach


def by_needs(suspects: Suspects) -> None:
    """What the ranks need, who has given such things, and who never has."""
    needs = suspects.needs
    for rank, need in needs.by_rank.items():
        if need.reach != Reach.RANKS:
            suspects.add((rank,), f"needs something of the {need.reach}")
            if len(need.on) == 1 and not need.either:
                suspects.add(need.on, "owes what is no call")
    for each in needs.shared:
        could, several = {*each.could}, len(each.waiting) > 1 or each.asked
        if not could:
            suspects.add(each.waiting, "wait for what one of them has to give")
        elif several:
            suspects.add(each.waiting, "several wait for what few could give")
            suspects.add(
                could, "nobody else could still provide" if len(could) == 1 else "among them who could provide"
            )
        else:
            suspects.add(each.waiting, "waits alone for what others could give")
            if len(could) == 1:
                suspects.add(could, "the other one could provide")
        suspects.add(could & each.took, "took before what others wait for")
        suspects.add(could & each.gave - each.took, "gave what others take")
        if each.gave & each.took:
            suspects.add(each.never & could or each.never, "never gave what others gave")
    for chain in suspects.case.chains.values():
        suspects.add({hop.node.rank for hop in chain.circle}, "a circle of their threads")
