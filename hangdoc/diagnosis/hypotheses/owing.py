"""Who owes what others need, where that is no call: a key, a file, an item, an answer, a lock."""

from __future__ import annotations

from hangdoc.diagnosis.hypotheses.suspects import Suspects
from hangdoc.diagnosis.needs.need import Reach

_BY_REACH = {
    Reach.JOB: "needs what others have to give",
    Reach.OWN: "its need ends at itself",
    Reach.OUTSIDE: "its need leads outside",
}


def by_needs(suspects: Suspects) -> None:
    """What the ranks need, who could give such things, who has given them, and who never has."""
    needs = suspects.needs
    for rank, need in needs.by_rank.items():
        if need.reach in _BY_REACH:
            suspects.add((rank,), _BY_REACH[need.reach])
        suspects.add(needs.holders(rank), "holds what others wait for")
    for each in needs.shared:
        could = {*each.could}
        if len(each.waiting) == 1 and not each.asked and could:
            suspects.add(each.waiting, "waits alone for what others could give")
        elif len(could) == 1:
            suspects.add(could, "nobody else could still provide")
        suspects.add(could & each.took, "took before what others wait for")
        suspects.add(could & each.gave - each.took, "gave what others take")
        if each.gave & each.took:
            suspects.add(each.never & could or each.never, "never gave what others gave")
    for chain in suspects.case.chains.values():
        suspects.add({hop.node.rank for hop in chain.circle}, "a circle of their threads")
