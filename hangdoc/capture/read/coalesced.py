"""Calls that a recorder writes down as several entries: the parts of a coalesced call, and the call itself.

NCCL (torch 2.6-2.13) records every part without a state, and after them one entry 'coalesced' of the same number that
carries it; an uneven all_gather is one number with a broadcast for each rank. So what has one number is one call.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from typing import TypeVar

from hangdoc.model.journal import Call, PointToPoint

_ORDER = ("", "scheduled", "started", "completed")
_Entry = TypeVar("_Entry", Call, PointToPoint)


def one_for_each_number(calls: Sequence[Call], closed: Set[tuple[str, int]] = frozenset()) -> list[Call]:
    """``calls`` with the entries of one number in a group as one call.

    ``closed``: the (group, number) of calls after which an entry was left out that had completed. Of a call in parts
    it was the one that carries the state.

    Example: all_reduce #4 (scheduled), all_reduce #4 (scheduled), coalesced #4 (completed) → all_reduce #4 of the sizes
    of both, completed.
    """
    found: list[Call] = []
    parts: dict[tuple[str, int], tuple[int, list[Call]]] = {}
    for call in calls:
        known = parts.get((call.group, call.sequence))
        if known is None or not call.state:
            parts[call.group, call.sequence] = (len(found), [call])
            found.append(call)
        else:
            known[1].append(call)
    for place, entries in parts.values():
        if len(entries) > 1 or _closes(entries[0]):
            found[place] = _joined(entries)
            if (entries[0].group, entries[0].sequence) in closed and not any(map(_closes, entries)):
                found[place] = replace(found[place], state="completed", completed=True)
    return found


def with_the_state_of_their_batch(
    messages: Sequence[PointToPoint], closed: Set[int] = frozenset()
) -> list[PointToPoint]:
    """``messages`` without the entries that close a batch; those of a batch have the state of the entry that closes it.

    Of a batch that nothing closes the program was still issuing messages, unless the entry that closes it was left out
    because it had completed: ``closed`` are the numbers of those. Where some were, so were those of other batches.
    """
    batches: dict[tuple[str, int], list[PointToPoint]] = {}
    for message in messages:
        if message.batch:
            batches.setdefault((message.group, message.batch), []).append(message)
    return [
        _as_in_its_batch(message, batches.get((message.group, message.batch), [message]), closed)
        for message in messages
        if not _closes(message)
    ]


def _as_in_its_batch(message: PointToPoint, batch: list[PointToPoint], closed: Set[int]) -> PointToPoint:
    """``message`` with the state of the entries of its batch, which is of itself alone where it was issued alone."""
    several = len(batch) > 1
    left_out = message.batch in closed or (closed and several)
    if left_out and not (several and any(map(_closes, batch))):
        return replace(message, state="completed", completed=True)
    if not several:
        return replace(message, batch=0) if message.batch else message
    last = max(batch, key=_progress)
    return replace(
        message,
        state=last.state,
        completed=last.completed,
        started_ns=last.started_ns,
        completed_ns=last.completed_ns,
        duration_ns=last.duration_ns,
    )


def _closes(entry: Call | PointToPoint) -> bool:
    return entry.op == "coalesced" or entry.op.endswith("_coalesced")


def _progress(entry: Call | PointToPoint) -> tuple[bool, int]:
    return entry.completed, _ORDER.index(entry.state) if entry.state in _ORDER else 0


def _joined(entries: list[Call]) -> Call:
    """One call of all ``entries``: the first one's place in the program, and the state of the furthest on."""
    parts = [entry for entry in entries if not _closes(entry)] or entries
    last = max(entries, key=_progress)
    return replace(
        entries[0],
        op=_operation(entries[-1], parts),
        input_sizes=tuple(size for entry in parts for size in entry.input_sizes),
        output_sizes=tuple(size for entry in parts for size in entry.output_sizes),
        input_dtypes=tuple(dict.fromkeys(dtype for entry in parts for dtype in entry.input_dtypes)),
        state=last.state,
        completed=last.completed,
        started_ns=last.started_ns or max(entry.started_ns for entry in entries),
        completed_ns=last.completed_ns,
        duration_ns=last.duration_ns,
        timeout_ms=max(entry.timeout_ms for entry in entries),
    )


def _operation(last: Call, parts: list[Call]) -> str:
    """What Python calls the call that has these parts and this last entry."""
    name = last.op.removesuffix("_coalesced").lower() if _closes(last) else ""
    ops = {entry.op for entry in parts}
    return _NAMES.get(name) or (ops.pop() if len(ops) == 1 else "coalesced")


_NAMES = {"allgather": "all_gather", "reduce_scatter": "reduce_scatter", "alltoall": "all_to_all"}
"""What torch calls in the closing entry of a coalesced call (its ``OpType``) → what Python calls it."""
