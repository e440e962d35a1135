"""What each rank of a side itself issued where one of them stands for all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from hangdoc.diagnosis.calls.history import GroupHistory, Token
from hangdoc.diagnosis.frames.landmarks import plain


def calls_of(histories: Iterable[GroupHistory], call: Token, ranks: Collection[int]) -> dict[int, Token]:
    """Rank → its own call of that number, group and operation; ranks of which none is known are left out.

    Example: rank 0 stands for ranks 0 and 1 in barrier #5 at line 9 → {0: that of line 9, 1: its own, of line 6}.
    """
    history = next((each for each in histories if each.key == call.group and not each.inferred), None)
    if history is None:
        return {}
    of_list = {id(calls): _own_of(calls, call) for calls in history.lists(ranks)}
    found = ((rank, of_list.get(id(history.tokens.get(rank)))) for rank in ranks)
    return {rank: own for rank, own in found if own is not None}


def _own_of(calls: Sequence[Token], call: Token) -> Token | None:
    own = next((each for each in reversed(calls) if each.sequence <= call.sequence), None)
    if own is None or (own.sequence, own.op, own.thread) != (call.sequence, call.op, call.thread):
        return None
    return own


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
