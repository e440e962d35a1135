"""The executions of a loop: which calls of a rank lie in it, how many each execution made, and how it ended."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from hangdoc.diagnosis.calls.history import Token
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import Site, user_stack
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import LOOPS, walk
from hangdoc.model.process import Frame


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


def since_return(
    sources: Sources, loop: BranchPoint, tokens: Sequence[Token], outside: Token | None
) -> Sequence[Token]:
    """The calls after the last execution that a `return` in the loop ended: it was cut short, and so tells nothing of
    how often the loop goes round by itself.

    ``outside``: the call that followed the last execution. Where nothing but the end of the loop leads to its line,
    an execution after which the rank called from outside of the function never came there. Example, with `run(stop=2)`
    and then `run()`: the second execution alone.

        1  for batch in loader:
        2      step(batch)
        3      if step.number == stop:
        4          return
        5  dist.barrier()
    """
    last = user_stack(outside.stack)[:1] if outside is not None else ()
    after = last[0].line if last and _is_of(last[0], loop) else 0
    if not after or not _always_follows(sources, loop, after):
        return tokens
    left = 0
    for n, token in enumerate(tokens[1:], 1):
        if is_inside(tokens[n - 1], loop) and not any(_is_of(frame, loop) for frame in token.stack):
            left = n
    return tokens[left:]


def _is_of(frame: Frame, loop: BranchPoint) -> bool:
    return (frame.file, plain(frame.function)) == (loop.file, loop.function)


def _always_follows(sources: Sources, loop: BranchPoint, line: int) -> bool:
    """True if the loop, which a `return` leaves, leads to that line wherever it ends otherwise."""
    tree = sources.function(loop.file, loop.guard.line)
    if tree is None or line <= loop.guard.span[1]:
        return False
    found = [n for n in walk(tree) if isinstance(n, LOOPS) and n.lineno == loop.guard.line]
    returns = any(isinstance(each, ast.Return) for node in found for each in walk(node))
    around = {guard.place for guard in guards(tree, loop.guard.line)}
    within = [g for g in guards(tree, line) if not (loop.guard.span[0] <= g.line <= loop.guard.span[1])]
    return returns and all(guard.place in around for guard in within)


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
