"""The executions of a loop: which calls of a rank lie in it, how many each execution made, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence

from hangdoc.diagnosis.calls.history import Token
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import Site


def runs(tokens: Sequence[Token], point: BranchPoint, site: Site | None = None) -> list[int]:
    """How many calls each execution of the loop issued; the last one may not be over.

    Two executions with no call between them count as one; what another thread calls meanwhile is between none.
    ``site``: only calls from there are counted. Example: calls in, in, out, in of a loop → [2, 1].
    """
    counts: list[int] = []
    within: tuple[str, int] | None = None  # the thread that is in the loop
    for token in tokens:
        if is_inside(token, point):
            if within is None:
                counts.append(0)
            counts[-1] += site in (None, token.site)
            within = (token.thread, token.thread_id)
        elif within == (token.thread, token.thread_id):
            within = None
    return counts


def is_inside(token: Token, point: BranchPoint) -> bool:
    """True if the call was made in the body of the guard's statement, or in a function called from there; in the header
    as well, where each round of the loop begins with a call there."""
    first, last = point.guard.span
    first += not point.guard.in_header
    return any(
        f.file == point.file and plain(f.function) == point.function and first <= f.line <= last for f in token.stack
    )


def until(tokens: Sequence[Token], end: Token | None) -> Sequence[Token]:
    """The calls up to the one with the number of ``end``, that one included; all of them where it is None."""
    if end is None:
        return tokens
    last = next((i for i, t in enumerate(tokens) if t.group == end.group and t.sequence >= end.sequence), len(tokens))
    return tokens[: last + 1]


def until_left(tokens: Sequence[Token], outside: Token | None, loop: BranchPoint) -> Sequence[Token]:
    """The calls up to that of the side which left the loop. A call that is in the loop itself belongs to another
    execution of it: the function was called again, from elsewhere."""
    found = until(tokens, outside)
    return found[:-1] if outside is not None and found and is_inside(found[-1], loop) else found
