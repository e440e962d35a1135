"""The last calls of each group as a table: one row for each behavior, one column for each sequence number.

Example: ranks 0 and 1 call A, B, B and rank 2 calls A, B, C → rows (0, 1) and (2,), columns 1 to 3, diverged at 3.
"""

from __future__ import annotations

from hangdoc.diagnosis.bounds import LISTED
from hangdoc.diagnosis.calls.history import END, GroupHistory, Token
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.model.diagnosis import CallCell, CallRow, CallTable
from hangdoc.model.message import Place
from hangdoc.model.writing import Writer

_MOST_ROWS = 40
_BEFORE, _AFTER = 14, 5
_COLUMNS = _BEFORE + 1 + _AFTER
"""Columns before and after the divergence, and in all: as many as a page is wide. Chosen by hand."""


def call_tables(case: Case, blame: Blame[Explanation], writer: Writer) -> tuple[CallTable, ...]:
    """Tables of the groups in which ranks wait, that of the divergence first; () where stacks are all there is."""
    gap = blame.diverged.gap if blame.diverged is not None else None
    own = blame.diverged.alignment.history.key if blame.diverged is not None else None
    waiting = [h for h in case.histories if not h.inferred and (h.key == own or _is_waited_in(h))]
    waiting.sort(key=lambda history: history.key != own)
    tables = []
    for history in waiting[:LISTED]:
        at = gap.token.sequence if gap is not None and history.key == own and gap.token.op != END else None
        table = _table(history, at, frozenset(blame.culprits), writer)
        if table is not None:
            tables.append(table)
    return tuple(tables)


def _is_waited_in(history: GroupHistory) -> bool:
    lists = {id(calls): calls for calls in history.tokens.values() if calls}  # thousands of ranks share a few
    return any(calls[-1].pending or history.first_pending(calls[-1].rank) for calls in lists.values())


def _table(history: GroupHistory, at: int | None, culprits: frozenset[int], writer: Writer) -> CallTable | None:
    issued = [number for rank in history.members if (number := history.issued(rank))]
    if not issued:
        return None
    center = at if at is not None else min(issued) + 1
    first = max(1, history.first, center - _BEFORE)
    # What there is no room for before the divergence is left for the calls after it, up to those that hang.
    numbers = tuple(range(first, min(max(issued), max(center + _AFTER, first + _COLUMNS - 1)) + 1))
    if not numbers:
        return None
    rows: dict[tuple[bool, tuple[CallCell | None, ...]], list[int]] = {}
    made: dict[int, tuple[CallCell | None, ...]] = {}
    for rank in sorted(set(history.members) - set(history.blind)):
        calls = history.tokens.get(rank)
        if calls is None or id(calls) not in made:
            made[id(calls)] = tuple(_cell(history.at(rank, number), writer) for number in numbers)
        rows.setdefault((rank in culprits, made[id(calls)]), []).append(rank)
    shown = [CallRow(tuple(ranks), cells, guilty) for (guilty, cells), ranks in rows.items()]
    if history.blind:
        shown.append(CallRow(history.blind, (), any(rank in culprits for rank in history.blind), seen=False))
    shown.sort(key=lambda row: (not row.guilty, row.ranks))
    return CallTable(history.label, history.members, numbers, tuple(shown[:_MOST_ROWS]), at)


def _cell(token: Token | None, writer: Writer) -> CallCell | None:
    if token is None or token.op == END:
        return None
    frame = token.frame
    return CallCell(token.op, writer.write(Place(frame.file, frame.line)) if frame else "", token.pending)
