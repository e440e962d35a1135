"""When was it? Of a run of equal calls in one group, any may be the one that is missing or too many: the group alone
cannot tell. What the rank did in between, in its other groups, can: there it left the order it had kept before."""

from __future__ import annotations

from collections.abc import Iterator
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
    found = _skipped(program, run, gap.token.site) if gap.kind == "insert" else _added(program, run)
    if found is None:
        return alignment
    mine, sequence = found
    theirs = history.at(other, sequence)
    if theirs is None or sequence >= gap.token.sequence:
        return alignment
    token = theirs if gap.kind == "insert" else mine
    return replace(alignment, gaps=(replace(gap, token=token, mine=mine, theirs=theirs),))


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
    """The call that the rank went to straight away where it had always made the missing one first, and the number
    that this one would have had."""
    for order, a, b, known in _steps(program):
        if missing in (a, b) or (a, b) in known or not {(a, missing), (missing, b)} <= known:
            continue
        before = [token for token in run if token.order < order]
        if before:
            return program.token(order), before[-1].sequence + 1
    return None


def _added(program: RankProgram, run: list[Token]) -> tuple[Token, int] | None:
    """The call of the run that the rank made where it had always gone on without it."""
    inside = {token.order: token for token in run}
    for order, a, b, known in _steps(program):
        after = program.token(order + 1).site if order + 1 < len(program.journal.calls) else None
        if order in inside and (a, b) not in known and after is not None and (a, after) in known:
            return inside[order], inside[order].sequence
    return None


def _steps(program: RankProgram) -> Iterator[tuple[int, Site, Site, set[tuple[Site, Site]]]]:
    """Each call's place, the site before, its own, and all steps that the rank had made until then."""
    known: set[tuple[Site, Site]] = set()
    for order, (a, b) in enumerate(pairwise([token.site for token in program.tokens]), 1):
        yield order, a, b, known
        known.add((a, b))
