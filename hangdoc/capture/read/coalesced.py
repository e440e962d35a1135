"""Calls that a recorder writes down as several entries: the parts of a coalesced call, and the call itself.

NCCL (torch 2.6-2.13) records every part without a state, and behind them one entry 'coalesced' of the same number that
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

    ``closed``: the (group, number) of calls behind which an entry was left out that had completed. Of a call in parts
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
    states = {key: max(entries, key=_progress) for key, entries in batches.items() if len(entries) > 1}
    found = []
    for message in messages:
        if _closes(message):
            continue
        last = states.get((message.group, message.batch)) if message.batch else None
        left_out = message.batch in closed or (closed and last is not None)
        if left_out and not (last is not None and any(map(_closes, batches[message.group, message.batch]))):
            found.append(replace(message, state="completed", completed=True))
        elif last is None:
            found.append(replace(message, batch=0) if message.batch else message)
        else:
            state, started = last.state, last.started_ns
            found.append(replace(message, state=state, completed=last.completed, started_ns=started))
    return found


def _closes(entry: Call | PointToPoint) -> bool:
    return entry.op == "coalesced" or entry.op.endswith("_coalesced")


def _progress(entry: Call | PointToPoint) -> tuple[bool, int]:
    return entry.completed, _ORDER.index(entry.state) if entry.state in _ORDER else 0


def _joined(entries: list[Call]) -> Call:
    """One call of all ``entries``: the first one's place in the program, and the state of the furthest on."""
    parts = [entry for entry in entries if not _closes(entry)] or entries
    ops = dict.fromkeys(entry.op for entry in parts)
    last = max(entries, key=_progress)
    closing = entries[-1] if _closes(entries[-1]) else None
    name = closing.op.removesuffix("_coalesced").lower() if closing is not None else ""
    op = _NAMES.get(name) or (next(iter(ops)) if len(ops) == 1 else "coalesced")
    return replace(
        entries[0],
        op=op,
        input_sizes=tuple(size for entry in parts for size in entry.input_sizes),
        input_dtypes=tuple(dict.fromkeys(dtype for entry in parts for dtype in entry.input_dtypes)),
        state=last.state,
        completed=last.completed,
        started_ns=last.started_ns or max(entry.started_ns for entry in entries),
        timeout_ms=max(entry.timeout_ms for entry in entries),
    )


_NAMES = {"allgather": "all_gather", "reduce_scatter": "reduce_scatter", "alltoall": "all_to_all"}
"""What torch calls in the closing entry of a coalesced call (its ``OpType``) → what Python calls it."""
