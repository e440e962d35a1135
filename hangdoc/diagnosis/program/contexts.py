"""Where a slice stands: a function, and by which call it was come to."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hangdoc.diagnosis.program.bodies import Body
from hangdoc.diagnosis.program.callers import callers
from hangdoc.diagnosis.program.graph import ENTRY
from hangdoc.diagnosis.program.lookup import Lookup
from hangdoc.diagnosis.program.pieces import last_name


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """``call`` is the call in ``caller`` that the slice has gone into; or ``depth`` is the frame's place on the stack.
    Without either, whoever calls the function may have called it."""

    function: Body
    caller: Context | None = None
    node: int = ENTRY
    call: ast.Call | None = None
    depth: int | None = None


@dataclass(frozen=True, slots=True)
class Entered:
    """A call that may have led into a function; without ``call`` the place where it is handed on."""

    context: Context
    node: int
    call: ast.Call | None


class Contexts:
    """Of one slice. ``stack``: (file, line) of the frames, the innermost first."""

    def __init__(self, lookup: Lookup, stack: Sequence[tuple[str, int]]) -> None:
        self._lookup = lookup
        self._stack = [(lookup.index.at(file, line), line) for file, line in stack]

    def start(self, function: Body) -> Context:
        """That of the start: the innermost frame, or what that has called."""
        if not self._stack:
            return Context(function)
        return Context(function, depth=0 if self._stack[0][0] is function else -1)

    def entered(self, context: Context) -> Iterator[Entered]:
        """The calls that may have led into the context's function: on a stack the next frame, else all."""
        if context.call is not None and context.caller is not None:
            yield Entered(context.caller, context.node, context.call)
        elif context.depth is not None:
            yield from self._above(context.function, context.depth)
        else:
            for site in callers(self._lookup, context.function):
                yield Entered(Context(site.function), site.node, site.call)

    def _above(self, called: Body, depth: int) -> Iterator[Entered]:
        """The next frame up the stack whose source was captured; libraries' frames in between may not have been."""
        for place in range(depth + 1, len(self._stack)):
            function, line = self._stack[place]
            if function is not None:
                above = Context(function, depth=place)
                nodes = function.nodes_at(line)
                found = [(node, _call_in(function, node, called)) for node in nodes]
                exact = [Entered(above, node, call) for node, call in found if call is not None]
                yield from exact or [Entered(above, node, None) for node in nodes]
                return


def _call_in(function: Body, node: int, called: Body) -> ast.Call | None:
    """The call of the function in the node's code, by its name; of a class for its `__init__`."""
    owner = called.outer.short_name if called.outer is not None and called.short_name == "__init__" else ""
    return next((each for each in function.calls_at(node) if last_name(each.func) in (called.short_name, owner)), None)
