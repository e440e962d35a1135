"""By which condition a loop over an object was left early, where the rank waits in what ends that object.

Example: rank 3 waits for its prefetching thread in close(), of

    for batch in feed:
        tokens += len(batch)
        if tokens >= self.budget:
            break
    feed.close()

→ `if tokens >= self.budget:`. Who takes everything leaves nothing in the buffer that keeps the thread.
"""

from __future__ import annotations

import ast
from itertools import pairwise

from hangdoc.diagnosis.source.guards import way_out_guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, enclosing_function, holds, last_name, walk
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame, Stack

MOST_WAYS_OUT = 2
"""Of a loop; more of them are no reason any more. Chosen by hand."""


def left_early(sources: Sources, own: Stack) -> list[Condition]:
    """The ways out of the last loop over the object in whose method the stack waits; ``own``: its user frames."""
    for inner, frame in pairwise(own):
        tree = sources.function(frame.file, frame.line)
        function = enclosing_function(tree, frame.line) if tree is not None else None
        ended = _ended_at(function, frame, inner) if function is not None else set()
        nodes = list(walk(function)) if function is not None and ended else []
        block = next((n for n in nodes if isinstance(n, ast.With) and n.lineno == frame.line), None)
        loops = [
            node
            for node in nodes
            if isinstance(node, ast.For | ast.AsyncFor) and ended & _over(node.iter) and _is_over(node, block, frame)
        ]
        if function is not None and loops:
            last = max(loops, key=lambda node: node.lineno)
            ways = way_out_guards(function, last.lineno)
            found = [Condition(each.condition, frame.file, each.line) for each in ways]
            return found if len(found) <= MOST_WAYS_OUT else []
    return []


def _ended_at(function: ast.AST, frame: Frame, inner: Frame) -> set[str]:
    """What the frame's line ends: 'feed' of `feed.close()`, and of `with Feed() as feed:`, whose line it comes back
    to."""
    found: set[str] = set()
    called = inner.function.rpartition(".")[2]
    for node in walk(function):
        if isinstance(node, ast.Call) and holds(node, frame.line) and isinstance(node.func, ast.Attribute):
            found |= {dotted(node.func.value)} if node.func.attr == called else set()
        elif isinstance(node, ast.With) and node.lineno == frame.line and called == "__exit__":
            found |= {dotted(item.optional_vars or item.context_expr) for item in node.items}
    return found - {"", "self"}


def _is_over(loop: ast.For | ast.AsyncFor, block: ast.With | None, frame: Frame) -> bool:
    """True if the loop is before the frame's line, or in the `with` that this line leaves."""
    return holds(block, loop.lineno) if block is not None else loop.lineno < frame.line and not holds(loop, frame.line)


def _over(items: ast.expr) -> set[str]:
    """What a loop goes over: 'feed' of `feed`, `enumerate(feed)` and `feed.batches()`."""
    found = {dotted(node) for node in walk(items) if isinstance(node, ast.Name | ast.Attribute)}
    return found | ({last_name(items.func)} if isinstance(items, ast.Call) else set())
