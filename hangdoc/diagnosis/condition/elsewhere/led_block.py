"""A block that one rank goes through before the others, which wait at its entrance until it has left."""

from __future__ import annotations

import ast
from itertools import pairwise

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.names import pattern
from hangdoc.diagnosis.frames.stacks import same_function, user_stack
from hangdoc.diagnosis.source.handlers import with_at
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import holds, last_name, text_of
from hangdoc.model.message import Condition
from hangdoc.model.process import Stack

_ENTRANCES = ("__enter__", "__aenter__")


def entered_later(sources: Sources, gap: Gap) -> Condition | None:
    """The block that the others enter only when the culprits have left it, which wait for them in its body; None where
    either side has gone on since: then what the culprits called there was paired with the others' entrance."""
    if gap.mine is None or gap.theirs is None or not (gap.mine.pending and gap.theirs.pending):
        return None
    return led_block(sources, gap.mine.stack, gap.theirs.stack)


def led_block(sources: Sources, mine: Stack, theirs: Stack) -> Condition | None:
    """The `with` that lets one rank go first, in whose body ``mine`` is, while ``theirs`` is about to enter it; None
    where there is none.

    A block that all ranks enter together is none: the others may be in another round of it. Of one that a rank goes
    through first, those at the entrance have tested nothing in the body. Example: `with main_process_first(): ⏎ if
    bad: gather()`, rank 0 in gather(), the others in the barrier of the first line → that `with`.
    """
    inside = user_stack(mine)
    for inner, frame in pairwise(theirs):
        if plain(inner.function).rpartition(".")[2] not in _ENTRANCES:
            continue
        own = next((f for f in inside if same_function(f, frame)), None)
        tree = sources.function(frame.file, frame.line)
        node = with_at(tree, frame.line) if tree is not None else None
        if own is None or node is None or not any(holds(each, own.line) for each in node.body):
            continue
        for item in node.items:
            called = item.context_expr
            if not holds(called, frame.line) or not isinstance(called, ast.Call):
                continue
            if pattern("leader_goes_first").search(last_name(called.func)):
                return Condition(f"with {text_of(called)}:", frame.file, node.lineno)
    return None
