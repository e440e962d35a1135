"""What a culprit and another rank tested after the last call that they made alike, beside each other.

Example: after all_reduce #12, both came by `for batch in loader` (another round), then `if loss > limit` was true on
rank 1 and false on rank 0 → two rows, the second of which differs.
"""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.execution.decisions import condition_key
from hangdoc.diagnosis.execution.moments import moment
from hangdoc.diagnosis.execution.outcomes import place_of
from hangdoc.diagnosis.execution.parting import Pair, parting
from hangdoc.diagnosis.execution.tested import condition_at
from hangdoc.diagnosis.execution.traces import Act
from hangdoc.model.branches import BranchCounts
from hangdoc.model.diagnosis import Branch, BranchCell, BranchRow, BranchTable, Divergence
from hangdoc.model.journal import Call
from hangdoc.model.message import Place
from hangdoc.model.writing import Writer

_BEFORE, _ROWS = 10, 30
"""Rows before the first difference, and in all; chosen by hand: what a person reads of it."""


def with_moment(case: Case, found: Divergence | None, culprits: tuple[int, ...]) -> Divergence | None:
    """The divergence with the moment at which its condition came out as nowhere before, where that is proved."""
    branch = found.branch if found is not None else None
    if found is None or branch is None:
        return found
    key = condition_key(branch.file, branch.line, branch.condition)
    at = moment(case.table, case.execution, key, case.ranks, culprits)
    if at is None:
        return found
    every = len(case.ranks) >= (case.job.world_size or 0)
    return replace(found, branch=replace(branch, moment=replace(at, alone=at.alone and every)))


def branch_table(
    case: Case, culprits: tuple[int, ...], others: tuple[int, ...], branch: Branch | None, writer: Writer
) -> BranchTable | None:
    """The first culprit beside the first other rank from which it is seen to have parted, else that came otherwise
    through the branch, or decided otherwise after the last call of both; None where no two were recorded that far back,
    or none differ."""
    culprit = min(culprits, default=-1)
    ranks = [(culprit, other) for other in case.execution.alike(culprit, others)]
    for wanted in (_parted, _at_branch, _differs):
        for each in ranks:
            pair = case.execution.pair(*each)
            first = wanted(case, pair, branch) if pair is not None else None
            if pair is not None and first is not None:
                return _table(case, each, pair, first, branch, writer)
    return None


def _parted(case: Case, pair: Pair, _: Branch | None) -> int | None:
    found = parting(case.execution.sources, pair)
    return found.column if found is not None else None


def _at_branch(_: Case, pair: Pair, branch: Branch | None) -> int | None:
    """The first column after the last call of both in which they came otherwise through the branch."""
    since = pair.call_before(len(pair.columns))
    asked = pair.asked(condition_key(branch.file, branch.line, branch.condition)) if branch is not None else ()
    return next((number for number in asked if number > since and not pair.is_alike(number)), None)


def _differs(_: Case, pair: Pair, _branch: Branch | None) -> int | None:
    """The first column after the last call of both in which they decided otherwise."""
    since = pair.call_before(len(pair.columns))
    return next((n for n in pair.decided(since + 1) if not pair.is_alike(n)), None)


def _table(
    case: Case, ranks: tuple[int, int], pair: Pair, first: int, branch: Branch | None, writer: Writer
) -> BranchTable:
    since = pair.call_before(first)
    decided = list(pair.decided(since + 1))
    begin = max(0, decided.index(first) - _BEFORE)
    rows = []
    for number in decided[begin : begin + _ROWS]:
        acts = pair.act(0, number), pair.act(1, number)
        tests = [act.test for act in acts if act is not None and act.test is not None]
        cells = _cell(acts[0], writer), _cell(acts[1], writer)
        rows.append(BranchRow(cells, decides=branch is not None and any(_is_tested(case, branch, t) for t in tests)))
    act = pair.act(0, since) if since >= 0 else pair.start
    call = f"{act.call.op} #{act.call.sequence}" if act is not None and isinstance(act.call, Call) else ""
    return BranchTable(ranks, call, tuple(rows), begin, len(decided) - begin - len(rows))


def _is_tested(case: Case, branch: Branch, test: BranchCounts) -> bool:
    """True if it is the branch's condition, or a part of one that several tests make up."""
    if test.file != branch.file:
        return False
    condition = condition_at(case.sources, branch.file, branch.line)
    return condition.holds(place_of(test.file, test)) if condition is not None else test.line == branch.line


def _cell(act: Act | None, writer: Writer) -> BranchCell | None:
    if act is None or act.decided is None:
        return None
    file, line, text = act.decided.key
    return BranchCell(writer.write(Place(file, line)), text, act.decided.value)
