"""What each rank decides for itself about whom it exchanges messages with.

Example: `for peer in self.near: ⏎ dist.isend(edge, peer)`, and `self.near = [r for r, box in boxes if
own.touches(box)]`; rank 1 sends to rank 2 there, and rank 2 only to rank 3 → `if own.touches(box)`.
"""

from __future__ import annotations

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.message_calls import message_calls
from hangdoc.diagnosis.source.syntax import enclosing_function
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame, Stack


def decided_at(case: Case, frame: Frame) -> list[Condition]:
    """The conditions that decide whom the messages of that line name, which go to the items of a loop around them."""
    tree = case.sources.function(frame.file, frame.line)
    if tree is None:
        return []
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
