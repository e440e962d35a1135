"""What each rank of a side itself issued where one of them stands for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hangdoc.diagnosis.calls.history import GroupHistory, Token
from hangdoc.diagnosis.frames.landmarks import plain


def calls_of(histories: Iterable[GroupHistory], call: Token, ranks: Iterable[int]) -> dict[int, Token]:
    """Rank → its own call of that number, group and operation; ranks of which none is known are left out.

    Example: rank 0 stands for ranks 0 and 1 in barrier #5 at line 9 → {0: that of line 9, 1: its own, of line 6}.
    """
    history = next((each for each in histories if each.key == call.group and not each.inferred), None)
    found: dict[int, Token] = {}
    of_list: dict[int, Token | None] = {}  # ranks of equal programs share one list
    for rank in ranks if history is not None else ():
        calls = history.tokens.get(rank, []) if history is not None else []
        if id(calls) not in of_list:
            newest = (each for each in reversed(calls) if each.sequence <= call.sequence)
            own = next(newest, None)
            of_list[id(calls)] = own if own is not None and _is_one(own, call) else None
        if (known := of_list[id(calls)]) is not None:
            found[rank] = known
    return found


def _is_one(own: Token, call: Token) -> bool:
    return (own.sequence, own.op, own.thread) == (call.sequence, call.op, call.thread)


def who_came_by(calls: Mapping[int, Token], ranks: tuple[int, ...], file: str, function: str) -> tuple[int, ...]:
    """Those of the ranks whose call was made in the function, or in what it called; all of them where none was, as
    they may have come back from it.

    Example: rank 0 calls all_reduce in `drive()`, and ranks 1 and 2 in `serve()` → (1, 2) of `serve`.
    """
    there = {
        rank: any(f.file == file and plain(f.function) == plain(function) for f in call.stack)
        for rank, call in calls.items()
        if call.stack
    }
    came = tuple(rank for rank in ranks if there.get(rank, True))
    return came if True in there.values() and came else ranks
