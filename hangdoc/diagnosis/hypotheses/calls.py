"""Whose calls do not fit those of the others: minimum repairs, unequal arguments, runs of calls that one alone made.

Runs of a few calls as in "A Sense of Self for Unix Processes" (Forrest et al., IEEE S&P 1996): what a process does is
known by the short sequences of its calls, and a sequence that its siblings never made is where it went another way.
"""

from __future__ import annotations

from collections.abc import Hashable

from hangdoc.diagnosis.blame.arguments import disagreement
from hangdoc.diagnosis.calls.alignment import Alignment, all_repairs, cheapest
from hangdoc.diagnosis.calls.replay import completing
from hangdoc.diagnosis.hypotheses.suspects import Suspects, classes

_RUNS = (1, 3)
"""Calls of a run: Forrest et al. find six enough for a process of the kernel's 60 calls; a step has some twenty."""
_NEWEST = 400
"""Calls of a rank that are compared: a ring of the recorder holds 2,000, and what counts lies near its end."""
_MOST_RANKS = 64
"""Of which each is compared with all others."""


def by_calls(suspects: Suspects) -> None:
    """The repairs of each group, arguments and runs of calls."""
    _repairs(suspects)
    found = disagreement(suspects.case)
    for side in found.sides if found is not None else ():
        suspects.add(side, "unequal arguments")
    if 1 < len(suspects.case.programs) <= _MOST_RANKS:
        _runs(suspects)


def _repairs(suspects: Suspects) -> None:
    case = suspects.case
    several = [history for history in case.histories if len(history.members) > 1]
    by_group = [found for each in several if (found := all_repairs(each, case.ended & set(each.members)))]
    smallest = [cheapest(each) for each in by_group]
    enough: list[Alignment] | None = None
    for offered in (smallest, by_group) if case.programs else ():
        enough = enough or completing(case.programs, case.histories, case.ended, offered)
    group = enough or min(smallest, key=lambda each: min(a.when for a in each), default=[])
    for repair in group:
        if enough:
            suspects.add(repair.culprits, "a repair that completes all")
        if len(group) == 1:
            suspects.add(repair.culprits, "the only smallest repair")
        if repair.first is not None:
            suspects.add(repair.culprits, "made a call more" if repair.first.kind == "delete" else "left one out")


def _runs(suspects: Suspects) -> None:
    """The ranks that made a run of calls that none of their siblings made; siblings have half of their runs in
    common."""
    sequences = {rank: _sequence(suspects, rank) for rank in suspects.case.programs}
    lengths = {rank: len(each) for rank, each in sequences.items()}
    if len(classes(lengths)) > 1:
        suspects.add((r for r in lengths if lengths[r] == max(lengths.values())), "most calls")
        suspects.add((r for r in lengths if lengths[r] == min(lengths.values())), "fewest calls")
    for length in _RUNS:
        runs = {rank: _runs_of(each, length) for rank, each in sequences.items()}
        for rank, own in runs.items():
            others = [runs[other] for other in runs if other != rank]
            siblings = [each for each in others if 2 * len(own & each) >= min(len(own), len(each)) > 0]
            if not siblings:
                continue
            if not own <= set().union(*siblings):
                suspects.add((rank,), f"a run of {length} of its own")
            newest = tuple(sequences[rank][-length:])
            if len(sequences[rank]) > length + max(_RUNS) and newest not in _runs_of(sequences[rank][:-1], length):
                suspects.add((rank,), f"a newest run of {length} that it never made before")


def _sequence(suspects: Suspects, rank: int) -> list[Hashable]:
    """What the rank issued; of messages, the peers by their distance, as siblings have others."""
    world = len(suspects.ranks)
    return [
        (each.role[0], each.op, tuple(sorted((peer - rank) % world for peer in each.peers)), each.role[-1])
        if each.is_message
        else each.role
        for each in suspects.case.events.of(rank)[-_NEWEST:]
    ]


def _runs_of(sequence: list[Hashable], length: int) -> set[tuple[Hashable, ...]]:
    return {tuple(sequence[at : at + length]) for at in range(len(sequence) - length + 1)}
