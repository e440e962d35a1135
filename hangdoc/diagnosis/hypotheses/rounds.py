"""Who is in another round than whoever waits for it, and whose peer is another one than its siblings'.

Loops count: of two ranks in one loop, the one with the higher index has gone past a round in which the other still is.
Example: rank 2 waits in round 5 for a message of rank 1, which is in round 6 → rank 1 has left out that of round 5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hangdoc.diagnosis.bounds import COMPARED
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.hypotheses.suspects import Suspects, classes
from hangdoc.diagnosis.program.program import Program
from hangdoc.model.kinds import MESSAGES, ActivityKind
from hangdoc.model.process import Frame

_NAME = re.compile(r"\w+")
_Round = tuple[tuple[str, str, str], int]
"""(file, function, target of a loop) and its value."""


def by_rounds(suspects: Suspects) -> None:
    """The rounds of ranks that wait for one other, and the distances of peers."""
    if len(suspects.ranks) > COMPARED:
        return
    activities, graph = suspects.case.activities, suspects.case.graph
    targets: dict[tuple[str, int], list[str]] = {}
    rounds: dict[int, list[_Round]] = {}

    def of(rank: int) -> list[_Round]:
        if rank not in rounds:
            stack = reversed(user_stack(activities[rank].stack))
            program = suspects.needs.program
            rounds[rank] = [each for frame in stack for each in _rounds(program, frame, targets)]
        return rounds[rank]

    for waiter in activities:
        on = graph.on(waiter)
        if len(on) == 1:
            (owing,) = on
            if _compared(of(owing), of(waiter)) > 0:
                suspects.add((owing,), "is further on than who waits for it")
    _distances(suspects)


def _rounds(program: Program, frame: Frame, known: dict[tuple[str, int], list[str]]) -> Iterator[_Round]:
    """Of the loops around the frame's line, the outermost first, those that count."""
    at = frame.file, frame.line
    if at not in known:
        known[at] = _targets(program, frame)
    values = {local.name: local.value for local in frame.locals}
    for target in known[at]:
        counted = [name for name in _NAME.findall(target) if values.get(name, "").isdecimal()]
        if counted:
            yield (frame.file, plain(frame.function), counted[0]), int(values[counted[0]][:18])


def _targets(program: Program, frame: Frame) -> list[str]:
    """What the loops around the line set in each round: 'step, batch' of `for step, batch in enumerate(loader)`."""
    function = program.function(frame.file, frame.line)
    found: dict[int, str] = {}
    todo, seen = [frame.line], {frame.line}
    while todo and function is not None:
        around = function.controls(todo.pop())
        found |= {each.line: each.target for each, way in around if (each.kind, way) == ("for", "round")}
        todo += {each.line for each, _ in around} - seen
        seen.update(todo)
    return [found[line] for line in sorted(found)]


def _compared(mine: list[_Round], theirs: list[_Round]) -> int:
    """1 if mine is further on, -1 if theirs is, in the outermost loop in which they differ; 0 where that is unknown."""
    for (loop, value), (other, their) in zip(mine, theirs, strict=False):
        if loop != other:
            return 0
        if value != their:
            return 1 if value > their else -1
    return 0


def _distances(suspects: Suspects) -> None:
    """The ranks whose messages go another way round the ranks than those of most. Example: rank 2 of 5 sends to 0, and
    each other one to the next → rank 2."""
    apart, world = {}, suspects.case.job.world_size or len(suspects.ranks)
    for rank, each in suspects.case.activities.items():
        if each.kind in MESSAGES and each.peer is not None:
            way = each.peer - rank if each.kind == ActivityKind.SEND else rank - each.peer
            apart[rank] = way % world  # the last rank of a ring sends to the first one
    found = sorted(classes(apart), key=len)
    if len(found) > 1 and 2 * len(found[-1]) > len(apart):
        for few in found[:-1]:
            suspects.add(few, "its peer is at another distance")
