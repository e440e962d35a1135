"""How many rounds a library's loop has planned on each rank, by the values of its own names."""

from __future__ import annotations

from hangdoc.diagnosis.calls.history import Token
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.stopped_by import stops_of
from hangdoc.diagnosis.source.values import SideRanks, sides_differ
from hangdoc.model.process import Frame


def plans_rounds_alike(case: Case, loop: BranchPoint, tokens: tuple[Token | None, ...], ranks: SideRanks) -> bool:
    """True if a library's loop has planned equally many rounds on every rank, and the user's code does not stop it:
    then no rank left it early. ``tokens[i]`` and ``ranks[i]`` are those of side i.

    Example: transformers' Trainer with num_update_steps_per_epoch = 20 and max_steps = 40 on every rank → True. Where
    both are the same, they may be that of a stream, whose length nobody knows → False.
    """
    inside = tokens[loop.guarded]
    if (
        not loop.of_library
        or inside is None
        or stops_of(case.sources, Frame(loop.file, loop.guard.line, loop.function))
    ):
        return False
    functions = dict.fromkeys(plain(frame.function) for frame in inside.stack if frame.file == loop.file)
    plans = []
    for name in names("planned_rounds"):
        seen = [case.values.of(loop.file, function, name) for function in functions]
        if not any(sides_differ(each, ranks) is False for each in seen) or any(sides_differ(e, ranks) for e in seen):
            return False
        plans.append({value for each in seen for value in each.values()})
    return len(plans) > 1 and all(len(each) == 1 for each in plans) and plans[0] != plans[1]
