"""What comes with a call: the one that was always right before it, and the others' calls that its like has met."""

from __future__ import annotations

from collections.abc import Iterable
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


def met_before(history: GroupHistory, call: Token) -> list[Token]:
    """The others' calls, from other lines, that the rank's last call from the same line has met, each line once.

    Example: rank 0 calls gather at 8 under `if rank == 0:`, the others at 12 under its `else:`; of rank 0's second
    gather → the others' first one.
    """
    own = history.tokens.get(call.rank, ()) if not history.inferred else ()
    alike = (each for each in reversed(own) if each.sequence < call.sequence and _like(each) == _like(call))
    last = next(alike, None)
    if last is None:
        return []
    met = (history.at(rank, last.sequence) for rank in history.members if rank != call.rank)
    others = (each for each in met if each is not None and each.op == call.op and _like(each) != _like(call))
    return list({_like(each): each for each in others}.values())


def made_fewer(tokens: Iterable[Token], call: Token, before: Token) -> bool:
    """True if a rank, whose calls these are up to ``call``, has made fewer like ``before`` since the last one like
    ``call`` than before that one. Calls are alike if they are of one group and operation, from one line.

    Example: A A X A X → True for the last X and A.
    """
    counted = [0]
    for each in tokens:
        if (each.group, _like(each)) == (before.group, _like(before)):
            counted[-1] += 1
        elif (each.group, _like(each)) == (call.group, _like(call)):
            counted.append(0)
    return len(counted) > 2 and counted[-2] < counted[-3]


def _like(token: Token) -> tuple[object, ...]:
    return token.op, lines_of(token.site)
