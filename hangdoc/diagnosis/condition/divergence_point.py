"""Which of several equal calls is the missing or extra one.

Within a run of equal calls in one group, any of them may be missing or extra, and an alignment names the last one. The
rank's calls in other groups show which it is (``settle``): the one at which the rank left the order that it had kept
before. Two more cases are about the line of the call: where both arms of a condition make the call, the missing one is
the one in the rank's own arm (``own_counterpart``); where the rank made two equal calls, the one in the others'
function is theirs, and the one before it is extra (``partner_aside``).

Example: every step makes the calls a, x, b, with x in a group of its own; rank 1's calls are a x b, a b, a x b. In x's
group, rank 1 has one x fewer than the others: the alignment says the third is missing, ``settle`` says the second.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from hangdoc.diagnosis.bounds import TRIED
from hangdoc.diagnosis.calls.alignment import Alignment, Gap, crossed_before
from hangdoc.diagnosis.calls.history import END, GroupHistory, RankProgram, Token, distinct
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import Site, fork


def settle(case: Case, alignment: Alignment) -> Alignment:
    """The alignment with its only gap moved back to the call at which the culprits left their usual order.

    Their usual order is that of other programs, else of their own earlier calls. Unchanged if every order is usual.
    Example: with x the group's call and a, b calls of another group, a x b a b a x b → the gap moves from the end to
    the x missing between the second a and b.
    """
    history, gap = alignment.history, _only_gap(alignment)
    gap = _before_the_end(gap) if gap is not None and history.key == gap.token.group else None
    pair = _pair_of_ranks(case, history, gap) if gap is not None else None
    if gap is None or pair is None:
        return alignment
    run = _run(history, gap, *pair)
    like = [[t.site for t in each.tokens] for each, ranks in distinct(case.programs)[:TRIED] if pair[0] not in ranks]
    find = _skipped if gap.kind == "insert" else _added
    found = find(case.programs[pair[0]], run, gap.token.site, like)
    if found is None:
        return alignment
    mine, sequence = found
    theirs = history.at(pair[1], sequence)
    if theirs is None or sequence > gap.token.sequence:
        return alignment
    token = theirs if gap.kind == "insert" else mine
    return replace(alignment, gaps=(replace(gap, token=token, mine=mine, theirs=theirs),))


def _only_gap(alignment: Alignment) -> Gap | None:
    """The gap of an alignment that has one alone, whose calls were recorded."""
    return alignment.first if len(alignment.gaps) == 1 and not alignment.history.inferred else None


def _before_the_end(gap: Gap) -> Gap | None:
    """A gap that is a side's end, as a gap of the last call before it; None where both sides have ended.

    Example: the culprits have ended, the others wait in a barrier → the barrier is missing.
    """
    if gap.token.op != END:
        return gap
    if gap.theirs is not None and gap.theirs.op != END:
        return replace(gap, kind="insert", token=gap.theirs)
    if gap.mine is not None and gap.mine.op != END:
        return replace(gap, kind="delete", token=gap.mine)
    return None


def _pair_of_ranks(case: Case, history: GroupHistory, gap: Gap) -> tuple[int, int] | None:
    """(a culprit, one of the others) whose calls are compared; None where a program of theirs was not seen."""
    rank = gap.ranks[0]
    members = [gap.theirs.rank] if gap.theirs is not None else [r for r in history.members if r not in gap.ranks]
    other = next((r for r in members if r in case.programs), None)
    return (rank, other) if rank in case.programs and other is not None else None


def nearest_of_the_others(alignment: Alignment) -> Alignment:
    """The alignment with the others' call as that one of them makes it whose way there is the culprits' for longest: of
    leaders and followers, that of the culprits' own kind.

    Example: rank 1 is in follow:16, rank 0 in lead:9 → gather:3 and rank 2 in follow:21 → gather:3 → rank 2's.
    """
    gap, history = alignment.first, alignment.history
    if len(alignment.gaps) != 1 or gap is None:
        return alignment
    mine, theirs = gap.mine, gap.theirs
    if mine is None or theirs is None or not theirs.site:
        return alignment
    others = [rank for rank in sorted(history.tokens) if rank not in gap.ranks]
    if history.inferred:
        own = [history.tokens[rank] for rank in others]  # stacks alone show one call of each rank, groups have numbers
        tokens = [t for each in own for t in each if len(each) == 1 or t.sequence == theirs.sequence]
    else:
        tokens = [t for rank in others if (t := history.at(rank, theirs.sequence)) and t.pending == theirs.pending]
    alike = [theirs, *(t for t in tokens if t.op == theirs.op and t.site[:1] == theirs.site[:1])]
    ways = [fork(mine.stack, token.stack) for token in alike]
    nearness = [(way.common, way.within_function is not None) for way in ways]
    nearest = alike[nearness.index(max(nearness))]
    token = nearest if gap.kind == "insert" else gap.token
    return replace(alignment, gaps=(replace(gap, token=token, theirs=nearest),))


def own_counterpart(alignment: Alignment) -> Alignment:
    """The alignment in which the missing call is the one that the culprits themselves always made at that point.

    Example: in `if main: broadcast() else: broadcast()`, rank 1 is missing the broadcast of its own `else`, not that
    of the `if` in which rank 0 waits.
    """
    gap, history = _only_gap(alignment), alignment.history
    if gap is None or gap.theirs is None or gap.mine is None or END in (gap.theirs.op, gap.mine.op):
        return alignment
    answers = _own_calls_at(history, gap.theirs, gap.ranks[0])
    sites = {token.site for token in answers}
    if len(sites) != 1 or gap.theirs.site in sites or gap.mine.site in sites:
        return alignment
    now = gap.theirs
    own = replace(answers[-1], sequence=now.sequence, pending=now.pending, order=-1, created_ns=now.created_ns)
    return replace(alignment, gaps=(replace(gap, kind="insert", token=own),))


def _own_calls_at(history: GroupHistory, theirs: Token, rank: int) -> list[Token]:
    """What ``rank`` called each time the other rank made a call from the site of ``theirs``, before that one."""
    numbers = [t.sequence for t in history.tokens.get(theirs.rank, []) if t.site == theirs.site]
    calls = [history.at(rank, number) for number in numbers if number < theirs.sequence]
    return [call for call in calls if call is not None]


def partner_aside(alignment: Alignment) -> Alignment:
    """The alignment with the gap moved to the first of two equal calls, if the second pairs with the others' call.

    The call that pairs is the one in the same function. Example: the culprits call barrier in `log` and then in
    `load`, the others in `load` → the one in `log` is extra.
    """
    gap, history = _only_gap(alignment), alignment.history
    if gap is None or gap.kind != "delete" or gap.theirs is None:
        return alignment
    mine, theirs = (history.at(rank, gap.token.sequence - 1) for rank in (gap.ranks[0], gap.theirs.rank))
    if mine is None or theirs is None or not mine.op == theirs.op == gap.token.op:
        return alignment
    if not _one_function(gap.token, theirs) or _one_function(gap.token, mine):
        return alignment
    return replace(alignment, gaps=(replace(gap, token=mine, mine=mine, theirs=theirs),))


def before_its_end(alignment: Alignment) -> Alignment:
    """The alignment with the gap moved from the culprits' end to an earlier call of theirs, if that one was paired with
    a call that they make themselves.

    A rank that leaves a loop early goes on to the calls behind it, which pair with those of the loop on the others; at
    last it ends. Example: culprits [A, A, X, end], others [A, A, A, A] → the third A is missing.
    """
    gap = _only_gap(alignment)
    own = crossed_before(alignment) if gap is not None and gap.mine is not None and gap.mine.op == END else None
    theirs = alignment.history.at(gap.theirs.rank, own.sequence) if own and gap is not None and gap.theirs else None
    if gap is None or own is None or theirs is None:
        return alignment
    return replace(alignment, gaps=(replace(gap, kind="insert", token=theirs, mine=own, theirs=theirs),))


def next_call_pairs(alignment: Alignment, gap: Gap) -> bool:
    """True if the culprits' next call pairs with the others' current one. Example: culprits [A, B], others [B] → True.

    Two calls pair if they are of one operation and in one function that the extra call is not in.
    """
    following = alignment.history.at(gap.ranks[0], gap.token.sequence + 1)
    if following is None or gap.theirs is None or following.op != gap.theirs.op:
        return False
    return _one_function(following, gap.theirs) and not _one_function(following, gap.token)


def _one_function(a: Token, b: Token) -> bool:
    if a.frame is None or b.frame is None:
        return False
    return (a.frame.file, a.frame.function) == (b.frame.file, b.frame.function)


def is_own(gap: Gap) -> bool:
    """True if the missing call is in the culprits' own arm of a condition (see ``own_counterpart``)."""
    return gap.kind == "insert" and gap.theirs is not None and gap.token.site != gap.theirs.site


def _run(history: GroupHistory, gap: Gap, rank: int, other: int) -> list[Token]:
    """The rank's unbroken run of calls up to the gap, oldest first, that both ranks made at the gap's own site."""
    found: list[Token] = []
    last = min(gap.token.sequence - (gap.kind == "insert"), history.issued(other))
    for sequence in range(last, 0, -1):
        mine, theirs = history.at(rank, sequence), history.at(other, sequence)
        if mine is None or theirs is None or not mine.site == theirs.site == gap.token.site:
            break
        found.append(mine)
    return found[::-1]


def _skipped(program: RankProgram, run: list[Token], missing: Site, like: list[list[Site]]) -> tuple[Token, int] | None:
    """(the rank's call just after the place of the missing one, the missing one's number); None where none is missing.

    There, one call at ``missing`` fewer than usual was made. ``like``: the call sites of other programs, in order.
    Example: a x b a b, with x from line ``missing`` → (the second b, 2).
    """
    for order, _, count, usual in passages([t.site for t in program.tokens], missing, like):
        before = [token for token in run if token.order < order]
        if count == usual - 1 and before:
            return program.token(order), before[-1].sequence + 1
    return None


def _added(program: RankProgram, run: list[Token], extra: Site, like: list[list[Site]]) -> tuple[Token, int] | None:
    """(the extra call at ``extra``, its number), where one more than usual was made between two other calls.

    None where there is none. Example: a x b a x x b, with x from line ``extra`` → (the third x, 3).
    """
    for order, start, count, usual in passages([t.site for t in program.tokens], extra, like):
        inside = [token for token in run if start < token.order < order]
        if count == usual + 1 and inside:
            return inside[-1], inside[-1].sequence
    return None


Way = tuple[Hashable, Hashable]
"""(site of one call, site of the next one), with calls at the site in question left out; None for the beginning."""


def passages(
    sites: Sequence[Hashable], site: Hashable, others: Iterable[Sequence[Hashable]] = ()
) -> Iterator[tuple[int, int, int, int]]:
    """(end, start, count, usual) of each known way between two calls at other sites than ``site``.

    ``end`` and ``start`` are places in ``sites`` (-1: the beginning), ``count`` the calls at ``site`` between them, and
    ``usual`` how many there always were in ``others``, else earlier in ``sites``. Ways that always have the same count
    in ``sites`` are left out.

    Example: of a, x, b, a, x, b, a, b and the site x the last way from a to b yields (7, 6, 0, 1).
    """
    theirs, own = _counts(others, site), _counts([sites], site)
    before: dict[Way, list[int]] = {}
    for order, start, way, count in _ways(sites, site):
        usual = set(theirs.get(way) or before.get(way, []))
        if len(usual) == 1 and (len(set(own[way])) > 1 or len(own[way]) == 1):
            yield order, start, count, next(iter(usual))
        before.setdefault(way, []).append(count)


def _counts(programs: Iterable[Sequence[Hashable]], site: Hashable) -> dict[Way, list[int]]:
    """Way → how many calls at ``site`` were made on it, each time."""
    found: dict[Way, list[int]] = {}
    for sites in programs:
        for _, _, way, count in _ways(sites, site):
            found.setdefault(way, []).append(count)
    return found


def _ways(sites: Sequence[Hashable], site: Hashable) -> Iterator[tuple[int, int, Way, int]]:
    """(end, start, way, how many calls at ``site`` are between) of each two neighbours among the other calls."""
    others = [-1, *(order for order, each in enumerate(sites) if each != site)]
    for start, order in pairwise(others):
        yield order, start, (sites[start] if start >= 0 else None, sites[order]), order - start - 1
