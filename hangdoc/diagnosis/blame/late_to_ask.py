"""A rank that waits for the first thing that another one gives it, where all of its siblings have got theirs: it came
too late for what was given once.

Example: rank 0 publishes an order to all that have subscribed by then, and joins the all_reduce; ranks 1 and 2 have got
it and are in the all_reduce, and rank 3, which alone builds its vocabulary under `if shard.has_head:` before it
subscribes, waits for its first order → rank 3.
"""

from __future__ import annotations

import ast

from hangdoc.diagnosis.condition.parted_alone import alone_on_its_way
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.queries import calls_in
from hangdoc.diagnosis.source.syntax import enclosing_function, last_name
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.message import Condition


def late_to_ask(case: Case, rank: int) -> tuple[Condition, ...]:
    """Under what the rank alone of these has been before it came to ask; () where it has got something there before, or
    no sibling has, and where the counters of lines do not tell."""
    if case.activities[rank].kind is not ActivityKind.IO or len(case.graph.on(rank)) != 1:
        return ()
    siblings = tuple(sorted(case.graph.stuck - {rank} - case.graph.on(rank)))
    if len(case.table.known(siblings)) != len(siblings) or not siblings or not _went_on_alone(case, rank, siblings):
        return ()
    return tuple(alone_on_its_way(case, rank, siblings))


def _went_on_alone(case: Case, rank: int, siblings: tuple[int, ...]) -> bool:
    """True if the siblings have all gone on in the functions in which the rank is: they have run a line after its own,
    or called a function that is called there, and the rank never has."""
    lines = set(case.table.ran_alone(siblings, (rank,)))
    firsts = set(case.table.called_alone(siblings, (rank,)))
    for frame in user_stack(case.activities[rank].stack):
        tree = case.sources.function(frame.file, frame.line)
        function = enclosing_function(tree, frame.line) if tree is not None else None
        here = function if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) else None
        last = (here.end_lineno or 0) if here is not None else 0
        if any(file == frame.file and frame.line < line <= last for file, line in lines):
            return True
        called = [each for each in calls_in(here.body) if frame.line < each.lineno] if here is not None else []
        made = (each for call in called for each in case.sources.user_definitions(last_name(call.func)))
        if any((file, node.lineno) in firsts for file, node in made):
            return True
    return False
