"""What the program gives a pipeline's schedule for its number of micro-batches, and what that is computed from."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hangdoc.diagnosis.bounds import DEEPEST, NAMED
from hangdoc.diagnosis.condition.elsewhere.answers import Answer
from hangdoc.diagnosis.condition.elsewhere.set_before import set_by
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.names import is_rank_name, names
from hangdoc.diagnosis.source.settings import Place, place_of, settings
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import last_name, names_in, walk


def given(sources: Sources) -> tuple[Place, ast.expr] | None:
    """The number, where the program gives it in one place alone.

    Examples: `ScheduleGPipe(stage, n_microbatches=count)`, `ScheduleGPipe(stage, count)` → `count`.
    """
    found = {(file, value.lineno): value for file, value in _given(sources)}  # a file may be captured in several pieces
    if len(found) != 1:
        return None
    ((file, line), value) = next(iter(found.items()))
    place = place_of(sources, file, line)
    return (place, value) if place is not None else None


def number_set_by(sources: Sources) -> list[Answer]:
    """What set that number, where the program gives it in one place.

    Example: `ScheduleGPipe(stage, n_microbatches=count)`, with `count = micro_batches(probe)` → by what micro_batches()
    answers.
    """
    number = given(sources)
    found = set_by(sources, *number, by_rank=False) if number is not None else []
    return list(dict.fromkeys(answer for answer in found if answer.tests))[:NAMED]


def computed_from(case: Case, ranks: set[int]) -> tuple[str, dict[int, int]] | None:
    """(name, its value on these ranks) of what the number is computed from, where that differs between them.

    Example: `n_microbatches=math.ceil(rows / 4)` in schedule(), called as `self.schedule(rows)`, rows = 24 on ranks
    0 and 3, and 32 on ranks 1 and 2 → ('rows', {0: 24, …}).
    """
    number = given(case.sources)
    for place, name in _inputs(case.sources, *number, DEEPEST) if number is not None else ():
        if is_rank_name(name):
            continue  # it differs on ranks that agree as well
        function = getattr(place.function, "name", "<module>")
        seen = case.values.of(place.file, function, name)
        values = {rank: int(seen[rank]) for rank in sorted(ranks) if seen.get(rank, "").isdecimal()}
        if values.keys() == ranks and len(set(values.values())) > 1:
            return name, values
    return None


def _inputs(sources: Sources, at: Place, value: ast.expr, steps: int) -> Iterator[tuple[Place, str]]:
    """(place, name) of each name in the expression, and in what calls give for it where it is an argument."""
    for name in names_in(value):
        yield at, name
        for each in settings(sources, at, ast.Name(name)) if steps and name.isidentifier() else ():
            if each.how == "given" and each.value is not None:
                yield from _inputs(sources, each.at, each.value, steps - 1)


def _given(sources: Sources) -> Iterator[tuple[str, ast.expr]]:
    """(file, value) of each number of micro-batches that a call in the program gives: by its name, or, to a schedule of
    torch's, in its place."""
    for file, tree in sources.user_trees():
        for call in (node for node in walk(tree) if isinstance(node, ast.Call)):
            yield from ((file, each.value) for each in call.keywords if each.arg in names("micro_batches_argument"))
            if last_name(call.func) in names("pipeline_schedule") and len(call.args) > 1:
                yield file, call.args[1]
