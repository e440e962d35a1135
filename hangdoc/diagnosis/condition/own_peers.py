"""What each rank decides for itself about whom it exchanges messages with.

Example: `for peer in self.near: ⏎ dist.isend(edge, peer)`, and `self.near = [r for r, box in boxes if
own.touches(box)]`; rank 1 sends to rank 2 there, and rank 2 only to rank 3 → `if own.touches(box)`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hangdoc.diagnosis.bounds import NAMED
from hangdoc.diagnosis.condition.loops.held import items_of_value
from hangdoc.diagnosis.condition.matching_message import issued_from
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.message_calls import message_calls
from hangdoc.diagnosis.source.syntax import enclosing_function, holds, names_in, walk
from hangdoc.model.diagnosis import Activity
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame, Stack


def peers_decided_by(case: Case, waiter: Activity, peer: int) -> list[Condition]:
    """The conditions that decide whom a rank names at the line of the waiter's message, where the peer has passed
    messages from that line as well, and none with the waiter; [] otherwise.

    Of a list of messages that the line issues it is where these are prepared, those of the peer's part first.
    """
    frame = next(iter(user_stack(issued_from(case, waiter))), None)
    journal = case.ranks[peer].journal
    if frame is None or journal is None or not journal.has_all_messages:
        return []
    there = {
        message.peer
        for message in journal.point_to_points
        if any((at.file, at.line) == (frame.file, frame.line) for at in user_stack(journal.stack(message.stack))[:1])
    }
    if not there or waiter.rank in there:
        return []
    return list(dict.fromkeys(decided_at(case, frame)))[:NAMED]


def decided_at(case: Case, frame: Frame) -> list[Condition]:
    """The conditions that decide whom the messages of that line name, which go to the items of a loop around them."""
    tree = case.sources.function(frame.file, frame.line)
    if tree is None:
        return []
    here = enclosing_function(tree, frame.line)
    for over in _named_from(here, frame.line):
        if found := items_of_value(case.sources, frame.file, here, over):
            return found
    return []


def decided_around(case: Case, stack: Stack) -> list[Condition]:
    """The conditions that decide whom the messages of the stack's innermost function of the program's name that passes,
    or prepares, any; [] where none does.

    Example: of `requests = [dist.isend(edge, peer) for peer in self.near] ⏎ for each in requests: ⏎ each.wait()`, in
    which a rank waits, those of `self.near`.
    """
    for frame in user_stack(stack):
        tree = case.sources.function(frame.file, frame.line)
        here = enclosing_function(tree, frame.line) if tree is not None else None
        lines = sorted({call.lineno for _, call, _ in message_calls(here)}) if here is not None else []
        if lines:
            found = (each for line in lines for each in decided_at(case, Frame(frame.file, line, frame.function)))
            return list(dict.fromkeys(found))
    return []


def _named_from(function: ast.AST, line: int) -> Iterator[ast.expr]:
    """What the loops and comprehensions go over whose items the messages of the line name as their peers."""
    named: set[str] = set()
    for _, call, given in message_calls(function):
        if given is not None and holds(call, line):
            named |= {name.partition(".")[0] for name in names_in(given)}
    for node in walk(function):
        around = isinstance(node, ast.For | ast.ListComp | ast.GeneratorExp | ast.SetComp) and holds(node, line)
        parts = [node] if isinstance(node, ast.For) else getattr(node, "generators", [])
        for part in parts if around else ():
            if not named.isdisjoint({n.id for n in walk(part.target) if isinstance(n, ast.Name)}):
                yield part.iter
