"""Which ranks beside two sides went the same way as one of them, where the sides part between two groups.

Example: ranks 2 and 3 are a group of two, rank 2 waits there in call #106 and rank 3 in all_gather #16 of all ranks;
ranks 0, 1 and 4 to 7 have issued #16 too, after call #105 of groups of their own → rank 3 is in company, rank 2 alone.
"""

from __future__ import annotations

from hangdoc.diagnosis.bounds import FEWEST
from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import END, GroupKey, RankProgram, Token
from hangdoc.diagnosis.calls.stack_calls import UNKNOWN_GROUP
from hangdoc.diagnosis.context import Case

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
    if mine.group == theirs.group or len(others) < FEWEST:
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
    if len(others) < FEWEST or _made_first(case.programs[mine.rank], mine, theirs) is not False:
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
