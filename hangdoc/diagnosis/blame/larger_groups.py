"""Which ranks beside two sides went the same way as one of them, where the sides part between two groups.

Example: ranks 2 and 3 are a group of two, rank 2 waits there in call #106 and rank 3 in all_gather #16 of all ranks;
ranks 0, 1 and 4 to 7 have issued #16 too, after call #105 of groups of their own → rank 3 is in company, rank 2 alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import END, GroupKey, RankProgram, Token
from hangdoc.diagnosis.calls.stack_calls import UNKNOWN_GROUP
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.elsewhere.ran_alone import ran_alone
from hangdoc.diagnosis.condition.loops.held import items_held
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.source.guards import CONDITIONS
from hangdoc.model.wording import ranks_text

_LEAST = 2
"""Ranks that are company; chosen by hand: one may be as wrong as the side that it is with."""
_MOST_BETWEEN = 4096
"""Calls between two of one group that are looked through; chosen by hand."""


def in_company(case: Case, gap: Gap | None) -> tuple[int, ...]:
    """The ranks of a larger group that issued the culprits' call, and not before it what answers to the others' call in
    groups of their own; () where most of that group did not, or none is known."""
    if gap is None or gap.mine is None or gap.theirs is None or END in (gap.mine.op, gap.theirs.op):
        return ()
    mine, theirs = (_as_issued(case, token) for token in (gap.mine, gap.theirs))
    if mine is None or theirs is None:
        return ()
    pair = {*gap.ranks, *theirs.group[1]}
    others = [rank for rank in mine.group[1] if rank not in pair and rank in case.programs]
    if mine.group == theirs.group or len(others) < _LEAST:
        return ()
    labels = {history.key: history.label for history in case.histories}
    with_it = tuple(rank for rank in others if _went_alike(case.programs[rank], labels, mine, theirs))
    return with_it if 2 * len(with_it) > len(others) else ()


def left_company(case: Case, gap: Gap | None) -> tuple[int, ...]:
    """The ranks of a larger group that issued the culprits' call too, but first made a call like the others', in groups
    of their own; () where most of that group did not, or none is known.

    Example: ranks 2 and 3 are a group of two, rank 2 waits there in all_to_all and rank 3 in all_reduce #43 of all
    ranks; ranks 0 and 1 have called all_to_all from that line after all_reduce #42, and now wait in #43 → (0, 1).
    """
    if gap is None or gap.mine is None or gap.theirs is None or END in (gap.mine.op, gap.theirs.op):
        return ()
    mine, theirs = (_as_issued(case, token) for token in (gap.mine, gap.theirs))
    if mine is None or theirs is None or not set(theirs.group[1]) < set(mine.group[1]):
        return ()
    others = [rank for rank in mine.group[1] if rank not in theirs.group[1] and rank in case.programs]
    if len(others) < _LEAST or _made_first(case.programs[mine.rank], mine, theirs) is not False:
        return ()
    made = tuple(rank for rank in others if _made_first(case.programs[rank], mine, theirs))
    return made if 2 * len(made) > len(others) else ()


def _made_first(program: RankProgram, mine: Token, theirs: Token) -> bool | None:
    """Whether the rank made a call from the site of ``theirs``, in a group of that size, since the call before ``mine``
    in its group; None where that is unknown."""
    own = program.recording.by_group.get(mine.group[0])
    if own is None or program.key(mine.group[0]) != mine.group:
        return None
    before, at = own.place_of(mine.sequence - 1), own.place_of(mine.sequence)
    if before is None or at is None or at - before > _MOST_BETWEEN or program.token(at).site != mine.site:
        return None
    between = map(program.token, range(before + 1, at))
    return any((t.op, t.site, len(t.group[1])) == (theirs.op, theirs.site, len(theirs.group[1])) for t in between)


def _as_issued(case: Case, token: Token) -> Token | None:
    """The call as its rank issued it: calls of several groups in one order have numbers of their own.

    None for one that was not recorded: a call that only a stack shows has no place.
    """
    program = case.programs.get(token.rank) if token.group[0] != UNKNOWN_GROUP else None
    return program.token(token.order) if program is not None and token.order >= 0 else None


def _went_alike(program: RankProgram, labels: dict[GroupKey, str], mine: Token, theirs: Token) -> bool:
    """True if the rank issued the call ``mine``, and no call numbered as ``theirs`` in a group of that name before."""
    own = program.recording.by_group.get(mine.group[0])
    at = own.place_of(mine.sequence) if own is not None and program.key(mine.group[0]) == mine.group else None
    if at is None or program.token(at).op != mine.op or program.token(at).site != mine.site:
        return False
    tracks = [
        track
        for name, track in program.recording.by_group.items()
        if labels.get(program.key(name)) == labels[theirs.group]
    ]
    places = [place for track in tracks if (place := track.place_of(theirs.sequence)) is not None]
    return bool(tracks) and all(place > at for place in places)


def alone_of_all(case: Case, ranks: tuple[int, ...], members: tuple[int, ...], points: Sequence[BranchPoint]) -> bool:
    """True if the ranks alone, of all that were seen, have gone their way at the likeliest condition: by what ran
    there, or made the items of a loop, by the values that it tests, or by what they wrote. ``members``: of their
    group."""
    found = (each(case, ranks, members, points) for each in (_ran_alone_of_all, _valued_alone_of_all))
    return any(found) or _told_alone_of_all(case, ranks, points) or _fed_alone_of_all(case, ranks, points)


def _told_alone_of_all(case: Case, ranks: tuple[int, ...], points: Sequence[BranchPoint]) -> bool:
    """True if what a few ranks alone wrote, where each of several others wrote otherwise or nothing, tells that they
    were led to their call by the condition."""
    rest = len(case.seen - set(ranks))
    return bool(points) and points[0].told and points[0].guarded == 0 and rest > max(len(ranks), _LEAST)


def _fed_alone_of_all(case: Case, ranks: tuple[int, ...], points: Sequence[BranchPoint]) -> bool:
    """True if a few ranks alone have been under a condition that decides how many items the loop goes over which parts
    the sides, by the interpreters' counters.

    Example: `for micro in micros:`, and rank 0 alone has run a line under `if used + n > self.limit:` of what makes
    them.
    """
    rest = tuple(sorted(case.seen - set(ranks)))
    if not points or not points[0].uneven or len(rest) <= max(len(ranks), _LEAST):
        return False
    held = {(each.file, each.line) for each in items_held(case.sources, points[0])}
    return any(each.side == 0 and (each.file, each.guard.line) in held for each in ran_alone(case, (ranks, rest)))


def _ran_alone_of_all(
    case: Case, ranks: tuple[int, ...], members: tuple[int, ...], points: Sequence[BranchPoint]
) -> bool:
    """True if the ranks alone, of all that were seen, have been in their arm of the likeliest condition, by the
    interpreters' counters, and several ranks of no group of theirs have tested it as well.

    Example: ranks 2 and 3 are a group of two; rank 2 alone has run line 28 under `if len(x) < least:`, and ranks 0 and
    1, a group of their own, have come to that condition and gone the way of rank 3 → True for rank 2.
    """
    point = next((p for p in points if p.guard.kind in (*CONDITIONS, "try")), None)
    outside = case.table.known(sorted(case.seen - set(members)))
    if point is None or point is not points[0] or len(outside) < _LEAST or not case.table:
        return False
    sides = ranks, tuple(sorted(case.seen - set(ranks)))
    alone = (each for each in ran_alone(case, sides) if each.side == 0)
    tested = case.table.split(outside, point.file, point.guard.line).ran
    here = point.file, point.guard.line
    return len(tested) >= _LEAST and any((each.file, each.guard.line) == here for each in alone)


def _valued_alone_of_all(
    case: Case, ranks: tuple[int, ...], members: tuple[int, ...], points: Sequence[BranchPoint]
) -> bool:
    """True if the ranks alone, of all that were seen, have another value of what the likeliest condition tests than all
    others, of which several are in no group of theirs.

    Example: ranks 2 and 3 are a group of two; `pixels` is None on rank 2, and a tensor on ranks 0, 1 and 3 → True for
    rank 2.
    """
    point, seen = points[0] if points else None, sorted(case.seen)
    outside = case.seen - set(members)
    if point is None or not point.differs or point.guard.kind not in CONDITIONS or len(outside) < _LEAST:
        return False
    for name in point.guard.names:
        values = case.values.of(point.file, point.function, name)
        own, others = ({values.get(r) for r in seen if (r in ranks) is mine} for mine in (True, False))
        if len(others) == 1 and None not in own | others and own.isdisjoint(others):
            return True
    return False


def led_alone(point: BranchPoint, ranks: tuple[int, ...]) -> str:
    """The reason in words where they have."""
    return f"`{point.guard.condition}` has led {ranks_text(ranks)} alone there, of the ranks of all groups"
