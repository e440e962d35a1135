"""Who is unlike the others: ranks at another place, in other code.

N runs of one program of which most are right (Mirgorodskiy, Maruyama and Miller, SC 2006): the outlier is the suspect.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping

from hangdoc.diagnosis.bounds import COMPARED
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.names import is_rank_name
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.hypotheses.suspects import Ranks, Suspects, classes
from hangdoc.diagnosis.source.values import is_hidden
from hangdoc.model.process import Stack


def by_unlikeness(suspects: Suspects) -> None:
    """Stacks, kinds of waits, other threads, values, groups, lines that have run."""
    activities = suspects.case.activities
    ways = {rank: _way(each.stack) for rank, each in activities.items()}
    suspects.add_classes(classes(ways), "another stack")
    suspects.add_classes(classes({rank: each.kind for rank, each in activities.items()}), "another wait")
    suspects.add_classes(classes(_side_threads(suspects)), "other threads")
    _values(suspects)
    _groups(suspects)
    _output(suspects)
    if len(suspects.ranks) <= COMPARED:
        _lines(suspects)


def _way(stack: Stack) -> tuple[tuple[str, str, int], ...]:
    """The user's frames, the outermost first."""
    return tuple((frame.file, frame.function, frame.line) for frame in reversed(user_stack(stack)))


def _side_threads(suspects: Suspects) -> dict[int, frozenset[tuple[tuple[str, str, int], ...]]]:
    looks = {r: each.process.last for r, each in suspects.case.ranks.items() if each.process is not None}
    return {
        rank: frozenset(_way(thread.frames) for thread in look.threads if thread is not look.main)
        for rank, look in looks.items()
        if look is not None
    }


def _values(suspects: Suspects) -> None:
    """The ranks that hold one value where most others hold another. What has as many values as ranks is theirs by
    design."""
    case = suspects.case
    places = {(way[-1][0], plain(way[-1][1])) for each in case.activities.values() if (way := _way(each.stack))}
    for file, function, name, values in case.values.every():
        few = _fewer(values)
        if few and not is_rank_name(name) and not any(map(is_hidden, values.values())):
            suspects.add(few, "another value")
            if (file, function) in places:
                suspects.add(few, "another value where they stand")


def _groups(suspects: Suspects) -> None:
    """The ranks that know of more groups than most, or of fewer."""
    journals = {rank: s.journal for rank, s in suspects.case.ranks.items() if s.journal is not None}
    if journals.keys() >= set(suspects.ranks):
        few = _fewer({rank: len(each.groups) for rank, each in journals.items()})
        suspects.add(few, "another number of groups")


def _output(suspects: Suspects) -> None:
    """The rank that alone wrote what others, at the same statement, have not."""
    writers: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
    for each in suspects.case.job.written:
        if each.rank is not None and each.places:
            writers[each.places[0]].add(each.rank)
    alone = {rank for ranks in writers.values() if len(ranks) == 1 for rank in ranks}
    if len(alone) == 1 and len(suspects.ranks) > 2:
        suspects.add(alone, "wrote a line alone")


def _fewer(values: Mapping[int, Hashable]) -> Ranks:
    """The ranks of the rarer of two values; () of any other number of values, and of two halves."""
    found = sorted(classes(values), key=len)
    return found[0] if len(found) == 2 and len(found[0]) < len(found[1]) else ()


def by_likeness(suspects: Suspects) -> None:
    """All ranks together, where there is the same evidence against each: what they do then is wrong as a whole."""
    against = [kinds for ranks, kinds in suspects.evidence().items() if len(ranks) == 1]
    if len(against) == len(suspects.ranks) > 1 and len(set(against)) == 1:
        suspects.add(suspects.ranks, "all alike")


def _lines(suspects: Suspects) -> None:
    table, seen = suspects.case.table, tuple(sorted(suspects.case.seen))
    if not table or len(table.known(seen)) < len(seen):
        return
    ways = {rank: _way(each.stack) for rank, each in suspects.case.activities.items()}
    for ranks in suspects.every():
        mine, others = tuple(r for r in ranks if r in seen), tuple(r for r in seen if r not in ranks)
        beside = {ways[r] for r in mine} <= {ways[r] for r in others}
        where = "where others stand" if beside else "where no other stands"
        alone = list(table.ran_alone(mine, others)) if mine and others else []
        if alone:
            suspects.add(ranks, f"ran lines alone, {where}")
        if any(suspects.needs.program.leaves(*place) for place in alone):
            suspects.add(ranks, "left a round or a function alone")
        if mine and others and not beside and any(table.ran_alone(others, mine)):
            suspects.add(ranks, "lacks lines that all others ran")
    for rank in table.ran_what_no_other_has(seen):
        suspects.add((rank,), "ran what no other has")
