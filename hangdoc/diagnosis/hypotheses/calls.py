"""Whose calls do not fit: the smallest repairs, each rank's own order, unequal arguments, runs that one alone made.

The smallest repair over all groups and messages at once (``calls.repair``) often leaves a choice: of two groups in
opposite order either rank may be changed. The rank's own earlier order (``calls.own_order``) tells them apart. Runs of
a few calls as in "A Sense of Self for Unix Processes" (Forrest et al., IEEE S&P 1996): what a process does is known by
the short sequences of its calls, and a sequence that its siblings never made is where it went another way.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from hangdoc.diagnosis.blame.arguments import disagreement
from hangdoc.diagnosis.bounds import COMPARED, SCANNED
from hangdoc.diagnosis.calls.alignment import repairs
from hangdoc.diagnosis.calls.own_order import Order, left_together, own_breaks, own_orders
from hangdoc.diagnosis.hypotheses.suspects import Ranks, Suspects, classes

_RUNS = (1, 3)
"""Calls of a run: Forrest et al. find six enough for a process of the kernel's 60 calls; a step has some twenty."""


def by_calls(suspects: Suspects) -> None:
    """The repairs of all channels and of each group, arguments, each rank's own order, and runs of calls."""
    found = disagreement(suspects.case)
    for side in found.sides if found is not None else ():
        suspects.add(side, "unequal arguments")
    _repairs_of_groups(suspects)
    repairs_of_all = {*suspects.case.smallest_repairs}
    orders = own_orders(suspects.case.programs, first=sorted({rank for each in repairs_of_all for rank in each}))
    _own_order(suspects, orders)
    _repairs_of_all(suspects, repairs_of_all, orders)
    if 1 < len(suspects.case.programs) <= COMPARED:
        _runs(suspects)


def _repairs_of_groups(suspects: Suspects) -> None:
    """The smallest repair of the calls of one group: of that which diverged first."""
    case = suspects.case
    several = [history for history in case.histories if len(history.members) > 1]
    found = [repairs(each, case.ended & set(each.members)) for each in several]
    for repair in min(filter(None, found), key=lambda each: min(a.when for a in each), default=[]):
        if repair.first is not None:
            suspects.add(repair.culprits, "made a call more" if repair.first.kind == "delete" else "left one out")


def _own_order(suspects: Suspects, orders: Mapping[int, Order]) -> None:
    """Who left its own earlier order most often; most ranks never do."""
    left = own_breaks(orders)
    most = max((len(breaks) for breaks in left.values()), default=0)
    suspects.add((rank for rank, breaks in left.items() if len(breaks) == most), "broke its own order most often")


def _repairs_of_all(suspects: Suspects, found: set[Ranks], orders: Mapping[int, Order]) -> None:
    """Who is changed by a smallest repair."""
    for ranks in left_together(orders):
        # Each of those who left their order together is mended with the others.
        if len(ranks) > 1 and found >= {(rank,) for rank in ranks}:
            found = {each for each in found if not set(ranks).issuperset(each)} | {ranks}
    for culprits in found:
        suspects.add(culprits, "a smallest repair of all calls")


def _runs(suspects: Suspects) -> None:
    """The ranks that made a run of calls that none of their siblings made; siblings have half of their runs in
    common."""
    sequences = {rank: _sequence(suspects, rank) for rank in suspects.case.programs}
    lengths = {rank: len(each) for rank, each in sequences.items()}
    if len(classes(lengths)) > 1:
        suspects.add((r for r in lengths if lengths[r] == min(lengths.values())), "fewest calls")
    for length in _RUNS:
        runs = {rank: _runs_of(each, length) for rank, each in sequences.items()}
        for rank, own in runs.items():
            others = [runs[other] for other in runs if other != rank]
            siblings = [each for each in others if 2 * len(own & each) >= min(len(own), len(each)) > 0]
            if siblings and not own <= set().union(*siblings):
                suspects.add((rank,), f"a run of {length} of its own")
    for rank, issued in sequences.items():
        if len(issued) > 1 + max(_RUNS) and issued[-1] not in issued[:-1]:
            suspects.add((rank,), "a newest call that it never made before")


def _sequence(suspects: Suspects, rank: int) -> list[Hashable]:
    """What the rank issued; of messages, the peers by their distance, as siblings have others."""
    world = len(suspects.ranks)
    return [
        (each.role[0], each.op, tuple(sorted((peer - rank) % world for peer in each.peers)), each.role[-1])
        if each.is_message
        else each.role
        for each in suspects.case.events.of(rank)[-SCANNED:]
    ]


def _runs_of(sequence: list[Hashable], length: int) -> set[tuple[Hashable, ...]]:
    return {tuple(sequence[at : at + length]) for at in range(len(sequence) - length + 1)}
