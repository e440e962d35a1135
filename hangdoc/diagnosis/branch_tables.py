"""What a culprit and another rank tested after the last call that they made alike, beside each other.

Example: after all_reduce #12, both came by `for batch in loader` (another round), then `if loss > limit` was true on
rank 1 and false on rank 0 → two rows, the second of which differs.
"""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.execution.alignment import align, first_difference
from hangdoc.diagnosis.execution.moments import moment
from hangdoc.diagnosis.execution.outcomes import place_of
from hangdoc.diagnosis.execution.stretches import Stretch, stretches
from hangdoc.diagnosis.execution.tested import condition_at, tested
from hangdoc.model.branches import BranchCounts
from hangdoc.model.diagnosis import Branch, BranchCell, BranchRow, BranchTable, Divergence
from hangdoc.model.message import Place
from hangdoc.model.writing import Writer

_MOST_TRIED = 8
"""Ranks that a culprit is compared with; chosen by hand."""
_BEFORE, _ROWS = 10, 30
"""Rows before the first difference, and in all; chosen by hand: what a person reads of it."""


def with_moment(case: Case, found: Divergence | None, culprits: tuple[int, ...]) -> Divergence | None:
    """The divergence with the moment at which its condition came out as nowhere before, where that is proved."""
    branch = found.branch if found is not None else None
    if found is None or branch is None:
        return found
    processes = {rank: snapshot.process for rank, snapshot in case.ranks.items()}
    at = moment(case.sources, branch.file, branch.line, processes, culprits)
    if at is None:
        return found
    every = len(processes) >= (case.job.world_size or 0)
    return replace(found, branch=replace(branch, moment=replace(at, alone=at.alone and every)))


def branch_table(
    case: Case, culprits: tuple[int, ...], others: tuple[int, ...], branch: Branch | None, writer: Writer
) -> BranchTable | None:
    """The first culprit beside the first other rank that tested otherwise; None where no two were recorded that far
    back, or none differ."""
    pairs = ((min(culprits), other) for other in sorted(others)[:_MOST_TRIED]) if culprits else ()
    return next((table for pair in pairs if (table := _table(case, pair, branch, writer)) is not None), None)


def _table(case: Case, ranks: tuple[int, int], branch: Branch | None, writer: Writer) -> BranchTable | None:
    found = stretches(case.ranks[ranks[0]], case.ranks[ranks[1]])
    if found is None:
        return None
    call, mine, theirs = found
    columns = align(mine.steps, theirs.steps)
    first = first_difference(mine.steps, theirs.steps, columns)
    if first is None:
        return None
    begin = max(0, first - _BEFORE)
    rows = []
    for one, other in columns[begin : begin + _ROWS]:
        cells = _cell(case, mine, one, writer), _cell(case, theirs, other, writer)
        test = mine.tests[one] if one is not None else theirs.tests[other or 0]
        rows.append(BranchRow(cells, decides=branch is not None and _is_tested(case, branch, test)))
    return BranchTable(ranks, f"{call.op} #{call.sequence}", tuple(rows), begin, len(columns) - begin - len(rows))


def _is_tested(case: Case, branch: Branch, test: BranchCounts) -> bool:
    """True if it is the branch's condition, or a part of one that several tests make up."""
    if test.file != branch.file:
        return False
    condition = condition_at(case.sources, branch.file, branch.line)
    return condition.holds(place_of(test.file, test)) if condition is not None else test.line == branch.line


def _cell(case: Case, side: Stretch, at: int | None, writer: Writer) -> BranchCell | None:
    if at is None:
        return None
    test, known = side.tests[at], tested(case.sources, side.tests[at])
    place = writer.write(Place(test.file, test.line))
    return BranchCell(place, known.text, known.words.get(side.steps[at].value, ""))
