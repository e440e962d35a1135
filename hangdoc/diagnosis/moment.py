"""When, and which one, was it? Of a run of equal calls in one group, any may be the one that is missing or too many:
the group alone cannot tell. What the rank did in between, in its other groups, can: there it left the order it had
kept before. And where both arms of a condition call, the one that is missing is the rank's own."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from hangdoc.diagnosis.alignment import Alignment, Gap
from hangdoc.diagnosis.case import Case
from hangdoc.diagnosis.sequences import END, GroupHistory, RankProgram, Site, Token


def settle(case: Case, alignment: Alignment) -> Alignment:
    """The alignment with its only gap moved back to the step of the culprits that their own history marks as odd; as
    it is where nothing marks any."""
    gap, history = alignment.first, alignment.history
    if gap is None or gap.theirs is None or len(alignment.gaps) != 1 or history.inferred or gap.theirs.op == END:
        return alignment
    rank, other = gap.ranks[0], gap.theirs.rank
    if gap.token.op == END:  # it ended where the others still have this call to come: it may have left it out before
        gap = replace(gap, kind="insert", token=gap.theirs)
    program = case.programs.get(rank)
    if program is None or history.key != gap.token.group:
        return alignment
    run = _run(history, gap, rank, other)
    found = _skipped(program, run, gap.token.site) if gap.kind == "insert" else _added(program, run, gap.token.site)
    if found is None:
        return alignment
    mine, sequence = found
    theirs = history.at(other, sequence)
    if theirs is None or sequence >= gap.token.sequence:
        return alignment
    token = theirs if gap.kind == "insert" else mine
    return replace(alignment, gaps=(replace(gap, token=token, mine=mine, theirs=theirs),))


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


def is_own(gap: Gap) -> bool:
    """Is the missing call one that the culprits have made before, and not the others'?"""
    return gap.kind == "insert" and gap.theirs is not None and gap.token.site != gap.theirs.site


def _run(history: GroupHistory, gap: Gap, rank: int, other: int) -> list[Token]:
    """The rank's calls in front of the gap, oldest first, as far as they and the other's under the same numbers are
    of the gap's own kind."""
    found: list[Token] = []
    for sequence in range(gap.token.sequence - (gap.kind == "insert"), 0, -1):
        mine, theirs = history.at(rank, sequence), history.at(other, sequence)
        if mine is None or theirs is None or not mine.site == theirs.site == gap.token.site:
            break
        found.append(mine)
    return found[::-1]


def _skipped(program: RankProgram, run: list[Token], missing: Site) -> tuple[Token, int] | None:
    """The first call that the rank came to with one call fewer of that kind on the way than ever before, and the
    number that the missing one would have had."""
    for order, _, count, usual in passages([t.site for t in program.tokens], missing):
        before = [token for token in run if token.order < order]
        if count == usual - 1 and before:
            return program.token(order), before[-1].sequence + 1
    return None


def _added(program: RankProgram, run: list[Token], extra: Site) -> tuple[Token, int] | None:
    """The last of the calls of that kind of which there was one more than ever before on the way between two others."""
    for order, start, count, usual in passages([t.site for t in program.tokens], extra):
        inside = [token for token in run if start < token.order < order]
        if count == usual + 1 and inside:
            return inside[-1], inside[-1].sequence
    return None


def passages(sites: Sequence[Hashable], site: Hashable) -> Iterator[tuple[int, int, int, int]]:
    """Each way from one call of another site to the next one, that the rank had gone before: the places of the two,
    the later one first, how many calls of ``site`` lie between them, and how many there always were."""
    usual: dict[tuple[Hashable, Hashable], set[int]] = {}
    others = [order for order, each in enumerate(sites) if each != site]
    for start, order in pairwise(others):
        way, count = (sites[start], sites[order]), order - start - 1
        counts = usual.setdefault(way, set())
        if len(counts) == 1:
            yield order, start, count, next(iter(counts))
        counts.add(count)
