"""Which exceptions the ranks' recorders saw come to a handler of the program.

Example: of `except ValueError:` at 35, that rank 1 caught a ValueError raised at 28, in decode().
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from hangdoc.diagnosis.source.guards import Guard, handlers_of
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.branches import Caught
from hangdoc.model.process import Process


def caught_at(process: Process, file: str, lines: Collection[int]) -> Caught | None:
    """The last exception that a handler in one of the lines caught; None where none was recorded."""
    values = {(each.branch, each.at_ns): each.value for each in process.taken}
    for each in reversed(process.caught):
        at = process.branches[each.branch] if 0 <= each.branch < len(process.branches) else None
        if at is None or at.file != file or at.line not in lines:
            continue
        if values.get((each.branch, each.at_ns)) in ("T", "V"):
            return each
    return None


def last_caught_alone(
    sources: Sources, processes: Mapping[int, Process | None], file: str, guard: Guard, ranks: Iterable[int]
) -> tuple[tuple[int, ...], Caught] | None:
    """(the ranks, what the first of them caught) as of ``caught_alone``; None where that is nothing, or not of one
    type."""
    caught = caught_alone(sources, processes, file, guard, ranks)
    alike = len({each.exception for each in caught.values()}) == 1
    return (tuple(caught), next(iter(caught.values()))) if alike else None


def caught_alone(
    sources: Sources, processes: Mapping[int, Process | None], file: str, guard: Guard, ranks: Iterable[int]
) -> dict[int, Caught]:
    """Rank → the last exception that the handlers of a `try`, or that one handler, caught on it, where each of
    ``ranks`` has caught one there and no other rank of ``processes`` ever has; else {}."""
    tree = sources.function(file, guard.line)
    heads = handlers_of(tree, guard) if tree is not None and guard.is_tried else [guard.place]
    lines = {line for line, _ in heads}
    found: dict[int, Caught] = {}
    for rank, process in processes.items():
        if process is None or not process.branches:
            return {}  # nobody knows what that one has caught
        tests = [each for each in process.branches if each.file == file and each.line in lines and each.is_sound]
        had = any(
            count for each in tests for value, count in zip(each.values, each.counts, strict=True) if value in "TV"
        )
        one = caught_at(process, file, lines)
        if had != (one is not None) or any(each.cut for each in tests):
            return {}
        if one is not None:
            found[rank] = one
    return dict(sorted(found.items())) if found.keys() == set(ranks) else {}
