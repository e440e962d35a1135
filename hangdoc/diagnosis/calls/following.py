"""Which call has always come right before another: who makes the second without the first has left the first out."""

from __future__ import annotations

from itertools import pairwise

from hangdoc.diagnosis.bounds import COMPARED
from hangdoc.diagnosis.calls.history import GroupHistory, Token
from hangdoc.diagnosis.frames.stacks import lines_of


def always_follows(history: GroupHistory, call: Token, before: Token) -> bool:
    """True if, but for ``call`` itself, every such call of the ranks came right after one like ``before``, and some
    did. Calls are alike if they are of one operation, from one line.

    Example: culprit [A, X, A, X, X], others [A, X, A, X, A] → True for the last X and A.
    """
    if history.inferred or _like(call) == _like(before):
        return False
    found = False
    for tokens in history.lists((call.rank, before.rank, *history.tokens))[:COMPARED]:
        for first, second in pairwise(tokens):
            if _like(second) != _like(call):
                continue
            if (second.rank, second.order) == (call.rank, call.order):
                if _like(first) == _like(before):
                    return False
            elif _like(first) != _like(before):
                return False
            else:
                found = True
    return found


def _like(token: Token) -> tuple[object, ...]:
    return token.op, lines_of(token.site)
