"""When, and which one, was it? Of a run of equal calls in one group, any may be the one that is missing or too many:
the group alone cannot tell. What the rank did in between, in its other groups, can: there it left the order it had
kept before. And where both arms of a condition call, the one that is missing is the rank's own."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from hangdoc.diagnosis.calls.alignment import Alignment, Gap
from hangdoc.diagnosis.calls.history import END, GroupHistory, RankProgram, Token, distinct
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import Site

_MOST_LIKE = 16
"""Other programs that are compared, the first that were seen: each is read for every candidate."""


def settle(case: Case, alignment: Alignment) -> Alignment:
    """The alignment with its only gap moved back to the step of the culprits that their own history, or that of a rank
    which matches, marks as odd; as it is where nothing marks any."""
    gap, history = alignment.first, alignment.history
    if gap is None or len(alignment.gaps) != 1 or history.inferred or history.key != gap.token.group:
        return alignment
    rank = gap.ranks[0]
    members = [gap.theirs.rank] if gap.theirs is not None else [r for r in history.members if r not in gap.ranks]
    other = next((r for r in members if r in case.programs), None)
    program = case.programs.get(rank)
    if program is None or other is None:
        return alignment
    if gap.token.op == END:  # of the last call, the reason may lie before
        if gap.theirs is not None and gap.theirs.op != END:
            gap = replace(gap, kind="insert", token=gap.theirs)
        elif gap.mine is not None and gap.mine.op != END:
            gap = replace(gap, kind="delete", token=gap.mine)
        else:
            return alignment
    run = _run(history, gap, rank, other)
    like = [[t.site for t in each.tokens] for each, ranks in distinct(case.programs)[:_MOST_LIKE] if rank not in ranks]
    find = _skipped if gap.kind == "insert" else _added
    found = find(program, run, gap.token.site, like)
    if found is None:
        return alignment
    mine, sequence = found
    theirs = history.at(other, sequence)
    if theirs is None or sequence > gap.token.sequence:
        return alignment
    token = theirs if gap.kind == "insert" else mine
    return replace(alignment, gaps=(replace(gap, token=token, mine=mine, theirs=theirs),))


def in_its_group(alignment: Alignment) -> Alignment:
    """The settled alignment with the culprits' own call as it stands in the group of the gap."""
    own = (replace(g, mine=alignment.history.at(g.ranks[0], g.token.sequence)) for g in alignment.gaps)
    return replace(alignment, gaps=tuple(own))


def own_counterpart(alignment: Alignment) -> Alignment:
    """The alignment with the call that the culprits themselves have always answered the others' missing one with:
    in `if main: … else: …` both arms call, each from a line of its own."""
    gap, history = alignment.first, alignment.history
    if gap is None or gap.theirs is None or gap.mine is None or len(alignment.gaps) != 1 or history.inferred:
        return alignment
    if END in (gap.theirs.op, gap.mine.op):
        return alignment
    answers: list[Token] = []
    for theirs in history.tokens.get(gap.theirs.rank, []):
        if theirs.sequence >= gap.theirs.sequence:
            break
        if theirs.site == gap.theirs.site:
            mine = history.at(gap.ranks[0], theirs.sequence)
            answers += [mine] if mine is not None else []
    alike = {token.site for token in answers}
    if len(alike) != 1 or gap.theirs.site in alike or gap.mine.site in alike:
        return alignment
    now = gap.theirs
    own = replace(answers[-1], sequence=now.sequence, pending=now.pending, order=-1, created_ns=now.created_ns)
    return replace(alignment, gaps=(replace(gap, kind="insert", token=own),))


def partner_aside(alignment: Alignment) -> Alignment:
    """Of two equal calls in a row one is too many, and the other has the others' call for a partner: that is the one
    from the same function. `if rank == 0: barrier()` at the end of a function meets `if rank != 0: barrier()` at its
    beginning, and not a barrier from somewhere else."""
    gap, history = alignment.first, alignment.history
    if gap is None or gap.kind != "delete" or len(alignment.gaps) != 1 or history.inferred or gap.theirs is None:
        return alignment
    before, met = (history.at(rank, gap.token.sequence - 1) for rank in (gap.ranks[0], gap.theirs.rank))
    if before is None or met is None or not before.op == met.op == gap.token.op:
        return alignment
    if not _one_function(gap.token, met) or _one_function(gap.token, before):
        return alignment
    return replace(alignment, gaps=(replace(gap, token=before, mine=before, theirs=met),))


def next_call_pairs(alignment: Alignment, gap: Gap) -> bool:
    """Is the call that the culprits make behind the one too many what the others' call there belongs to?"""
    behind = alignment.history.at(gap.ranks[0], gap.token.sequence + 1)
    if behind is None or gap.theirs is None or behind.op != gap.theirs.op:
        return False
    return _one_function(behind, gap.theirs) and not _one_function(behind, gap.token)


def _one_function(a: Token, b: Token) -> bool:
    return (
        a.frame is not None
        and b.frame is not None
        and (a.frame.file, a.frame.function)
        == (
            b.frame.file,
            b.frame.function,
        )
    )


def is_own(gap: Gap) -> bool:
    """Is the missing call one that the culprits have made before, and not the others'?"""
    return gap.kind == "insert" and gap.theirs is not None and gap.token.site != gap.theirs.site


def _run(history: GroupHistory, gap: Gap, rank: int, other: int) -> list[Token]:
    """The rank's calls in front of the gap, oldest first, as far as they and the other's under the same numbers are
    of the gap's own kind."""
    found: list[Token] = []
    last = min(gap.token.sequence - (gap.kind == "insert"), history.issued(other))
    for sequence in range(last, 0, -1):
        mine, theirs = history.at(rank, sequence), history.at(other, sequence)
        if mine is None or theirs is None or not mine.site == theirs.site == gap.token.site:
            break
        found.append(mine)
    return found[::-1]


def _skipped(program: RankProgram, run: list[Token], missing: Site, like: list[list[Site]]) -> tuple[Token, int] | None:
    """The first call that the rank came to with one call fewer of that kind on the way than usual, and the number that
    the missing one would have had."""
    for order, _, count, usual in passages([t.site for t in program.tokens], missing, like):
        before = [token for token in run if token.order < order]
        if count == usual - 1 and before:
            return program.token(order), before[-1].sequence + 1
    return None


def _added(program: RankProgram, run: list[Token], extra: Site, like: list[list[Site]]) -> tuple[Token, int] | None:
    """The last of the calls of that kind of which there was one more than usual on the way between two others."""
    for order, start, count, usual in passages([t.site for t in program.tokens], extra, like):
        inside = [token for token in run if start < token.order < order]
        if count == usual + 1 and inside:
            return inside[-1], inside[-1].sequence
    return None


Way = tuple[Hashable, Hashable]


def passages(
    sites: Sequence[Hashable], site: Hashable, others: Iterable[Sequence[Hashable]] = ()
) -> Iterator[tuple[int, int, int, int]]:
    """Each way from one call of another site to the next one that is known from before or from ``others``: the places
    of the two, the later one first (-1: the beginning), how many calls of ``site`` lie between them, and how many
    there always were. Ways that this one always goes alike are left out.

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
    found: dict[Way, list[int]] = {}
    for sites in programs:
        for _, _, way, count in _ways(sites, site):
            found.setdefault(way, []).append(count)
    return found


def _ways(sites: Sequence[Hashable], site: Hashable) -> Iterator[tuple[int, int, Way, int]]:
    others = [-1, *(order for order, each in enumerate(sites) if each != site)]
    for start, order in pairwise(others):
        yield order, start, (sites[start] if start >= 0 else None, sites[order]), order - start - 1
