"""What was looked up and run on one side alone, in words."""

from __future__ import annotations

from hangdoc.diagnosis.condition.elsewhere.dispatched import dispatched
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.message import Condition, Message, Ranks
from hangdoc.model.process import Stack


def looked_up_on_one_side(
    sources: Sources, sides: tuple[Stack, Stack], ranks: tuple[tuple[int, ...], tuple[int, ...]]
) -> tuple[Message, Condition, str] | None:
    """(what was looked up and run on one side alone, the call that did, what to do); None where nothing was."""
    found = dispatched(sources, sides)
    if found is None:
        return None
    all_run = f"all of them run {found.function}(), or none"
    fix = f"let all ranks look up the same there (broadcast what it is looked up by), so that {all_run}"
    mine, theirs = Ranks(ranks[found.side]), Ranks(ranks[1 - found.side])
    return (
        [
            found.call,
            f" looks up what it runs: it ran {found.function}() on ",
            mine,
            ", and may have run another function on ",
            theirs,
        ],
        found.call,
        fix,
    )
