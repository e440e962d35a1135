"""Calls of one number that differ: no future call can make them match."""

from __future__ import annotations

from hangdoc.diagnosis.calls.history import END, GroupHistory, Token
from hangdoc.diagnosis.calls.recorded_tokens import pending_numbers


def unlike_calls_paired(history: GroupHistory) -> bool:
    """True if ranks wait in calls of one number that differ, so that no future call can complete them.

    If all members have issued that number, any two different calls prove it: gloo waits for bytes that no rank sends.
    Otherwise two ranks must wait in different calls of that number. Example: rank 0 waits in #5 broadcast, rank 1 in #5
    all_reduce → True.
    """
    one_of_each = {id(history.tokens.get(rank)): rank for rank in history.members}
    waiting = _numbers_under_way(history)
    issued_by_all = 0 if history.blind or not waiting else min(map(history.issued, history.members), default=0)
    for sequence in waiting:
        calls_of_number = [t for rank in one_of_each.values() if (t := history.at(rank, sequence)) is not None]
        arrived = sequence <= issued_by_all
        counted = [t for t in calls_of_number if arrived or t.state or (t.pending and not history.inferred)]
        if len({(t.op, t.sizes, t.dtypes if t.state else ()) for t in counted}) > 1:
            return True
    return False


def unlike_calls_completed(history: GroupHistory) -> dict[int, Token]:
    """Rank → its call, for the first number at which all members completed calls that differ; {} where there is none.

    Example: all_reduce #7 of 8 elements on rank 3, of 4 on the others, and all went through.
    """
    lists = {id(calls): calls for calls in history.tokens.values() if calls}
    if history.open or history.inferred or len(lists) < 2:
        return {}
    by_number: dict[int, set[tuple[object, ...]]] = {}
    for calls in lists.values():
        for token in calls:
            if not token.pending and token.op != END:
                by_number.setdefault(token.sequence, set()).add((token.op, token.sizes, token.dtypes))
    first = min((number for number, shown in by_number.items() if len(shown) > 1), default=0)
    if not first:
        return {}
    return {rank: met for rank in history.members if (met := history.at(rank, first)) is not None}


def _numbers_under_way(history: GroupHistory) -> set[int]:
    """The numbers of the calls that ranks wait in."""
    # Thousands of ranks share a few lists.
    lists = {id(calls): calls for calls in history.tokens.values() if calls}.values()
    found = {calls[-1].sequence for calls in lists if calls[-1].pending}
    # A device's CPU runs ahead: the calls that it waits in are the first that have not completed.
    for calls in lists:
        if calls[-1].state:
            found.update(pending_numbers(calls))
    return found
