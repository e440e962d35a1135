"""The candidates: every guard at which the two sides can have diverged, and how likely each one is.

Side 0 is the culprits, side 1 the others; each side is one stack and its ranks. From the outermost frame on, the two
stacks are the same up to a function in which they are at different lines. Three kinds of guards can have sent them
there:

1. a guard around one side's line in that function, but not around the other's (``_in_common_function``);
2. a guard around a line further in, in a function that only one side has called (``_in_own_calls``);
3. a condition on the rank around the line that made the object whose method only one side is in (``_around_makers``).

Guards whose values are known to be the same on both sides are dropped; ``scores`` orders the others. Example:

    5  if rank == 0:
    6      if verbose:
    7          save()         # side 0 waits in here
    8  dist.barrier()         # side 1 waits here

gives `if rank == 0:` (a condition on the rank) and then `if verbose:`; ``choice`` picks from this list.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import takewhile

from hangdoc.diagnosis.condition.branch_point import BranchPoint, branch_point
from hangdoc.diagnosis.condition.common_function import common_function
from hangdoc.diagnosis.condition.elsewhere.as_called import values_as_called
from hangdoc.diagnosis.condition.elsewhere.contexts import contexts_chosen
from hangdoc.diagnosis.condition.elsewhere.made_objects import made_on_the_way
from hangdoc.diagnosis.condition.elsewhere.registered import registered_on_the_way
from hangdoc.diagnosis.condition.scored import scored
from hangdoc.diagnosis.condition.scores import (
    BY_RANK,
    PLAIN,
)
from hangdoc.diagnosis.condition.stack_comparison import (
    Callees,
    callees_of,
    common_rounds,
    guards_of,
    has_returned,
    readable,
    within_one_function,
)
from hangdoc.diagnosis.frames.landmarks import landmark, plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.diagnosis.frames.stacks import fork
from hangdoc.diagnosis.source.guards import Guard, jumps_further_in
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.values import SideRanks, Values, sides_differ
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.process import Frame, Stack

_ANOTHER_HANDLER = "a handler that another file registers looks the same"
_ENTRY_UNSEEN = "which entry of that table each rank looked up was not seen"
_AROUND = "a condition around that one looks the same"


def diverging_guards(
    sources: Sources,
    values: Values,
    sides: tuple[Stack, Stack],
    ranks: SideRanks,
    *,
    now: bool = False,
    ended: bool = False,
) -> list[BranchPoint]:
    """The guards at which the sides can have diverged, the likeliest first.

    ``sides[i]`` is a whole stack of side i (empty: nothing known), ``ranks[i]`` the ranks that follow it. ``now``: both
    are there now, as their values are. ``ended``: side 1 has come to the end of its program, and so has left every loop
    that side 0 is in.

    Example: side 0 in `if rank == 0: save()`, side 1 at the barrier after it → the `if`, whose ``guarded`` side is 0.
    """
    where = fork(*sides, frames_of=partial(readable, sources))
    ways, at, together = (where.mine, where.theirs), where.common, within_one_function(sources, where)
    callees = {**callees_of(sides[0]), **callees_of(sides[1])}
    found: list[BranchPoint] = []
    one_round = False
    if together is not None:
        counts = [values.of(*each) for each in common_rounds(sources, *sides)]
        one_round = bool(counts) and all(sides_differ(each, ranks) is False and _is_one(each, ranks) for each in counts)
        still = _are_still_there(values, together, ranks)  # what counts the rounds is seen as it is now
        found = _in_common_function(sources, values, together, ranks, callees, one_round=one_round and still)
    elif at:
        found = []
    for side, way in enumerate(ways):
        # If the other side is past the line that this one is inside of, it has left every loop further in.
        other = ways[1 - side]
        calling = callees_of(sides[1 - side])[id(other[at - 1])][0] if 0 < at == len(other) else frozenset()
        passed = has_returned(sources, other, way, at, calling) or (ended and side == 0)
        if together is not None:
            passed = other[at].line > way[at].line and not _makes_item_for(sources, way[at], other[at].line, callees)
            if now and one_round and _is_still_to_come(sources, way[at], other[at], callees):
                continue
        communicating = _within_communication(sides[side])
        first = at + 1 if together is not None else at
        for place in range(first, len(way)):
            if id(way[place]) in communicating:
                continue
            points = _in_own_calls(sources, values, way, place, side, ranks, callees, outside=passed)
            found += [replace(point, level=at + 1 + place - first) for point in points]
    found += _around_makers(sources, values, ways, at, ranks)
    for side, way in enumerate(ways):
        chosen = contexts_chosen(sources, way, at)
        found += [replace(branch_point(g, f, side, PLAIN, level=n), file=file, quiet=True) for g, file, f, n in chosen]
    return sorted(found, key=lambda p: -p.score)


def _are_still_there(values: Values, frames: tuple[Frame, Frame], ranks: SideRanks) -> bool:
    """False if a rank of a side is at another line of its function now: it may be in a later round than the call.

    Example: `for epoch in range(n): ⏎ train(epoch) ⏎ if main: score()`; rank 0's extra call was made in score(), and it
    is in train() of the next epoch now → False.
    """
    for frame, side in zip(frames, ranks, strict=True):
        lines = values.lines(frame.file, frame.function)
        if any(lines.get(rank, frame.line) != frame.line for rank in side):
            return False
    return True


def _is_one(counted: dict[int, str], ranks: SideRanks) -> bool:
    """True if it is the same on all ranks of both sides: of one side, some may be in a later round."""
    return len({counted[rank] for side in ranks for rank in side if rank in counted}) == 1


def _within_communication(stack: Stack) -> frozenset[int]:
    """The identities of a library's frames in which it communicates, and of those that they call: what goes round there
    is part of one communication.

    Example: of train → backward → `for handle in self.handles: handle.wait()`, the frames from backward on. What runs
    a module further in runs a part of the program: FSDP's wrapper around `generate()`, whose loop runs the model.
    """
    found: set[int] = set()
    within = False
    for frame in reversed(list(takewhile(lambda f: plain(f.function) not in names("module_call"), stack))):
        mark = landmark(frame)
        within = is_library(frame) and (within or (mark is not None and mark.kind == ActivityKind.IN_COLLECTIVE))
        found.update({id(frame)} if within else ())
    return frozenset(found)


def _is_still_to_come(sources: Sources, frame: Frame, other: Frame, callees: Callees) -> bool:
    """True if who is at ``other``, in the same round of each loop, has not come to ``frame``, of the same function: it
    has tested nothing that lies further in there.

    Example: of `for tick in range(n): ⏎ admit() ⏎ step()`, one is in admit() and the other in step(), at one tick →
    True for step().
    """
    return other.line < frame.line and not _makes_item_for(sources, other, frame.line, callees)


def _makes_item_for(sources: Sources, frame: Frame, line: int, callees: Callees) -> bool:
    """True if the frame is in the header of a loop that holds the line: there, the loop waits for its next item."""
    return any(guard.in_header and guard.holds(line) for guard in guards_of(sources, frame, callees))


def wrapped_for_one_rank(stack: Stack) -> bool:
    """True if a library's wrapper in the stack runs the user's function on one rank only (`@rank_zero_only`)."""
    return any(
        pattern("runs_on_one_rank").search(f.file) or pattern("runs_on_one_rank").search(f.function) for f in stack
    )


def _in_common_function(
    sources: Sources,
    values: Values,
    frames: tuple[Frame, Frame],
    ranks: SideRanks,
    callees: Callees,
    *,
    one_round: bool,
) -> list[BranchPoint]:
    """The guards in the function that both sides are in. ``frames[i]`` and ``ranks[i]`` are those of side i.

    Example: side 0 under `if rank == 0:` at line 3, side 1 at line 9 after it → that `if`, with ``guarded`` 0.
    """
    common = common_function(sources, frames, callees, one_round=one_round)
    found = []
    for side in (0, 1):
        other_line = frames[1 - side].line
        for guard in common.guards[side]:
            if not common.can_decide(guard, side):
                continue
            outside = not guard.holds(other_line)
            point = scored(sources, values, guard, frames[side], side, ranks, outside=outside, counts=common.rounds)
            if point is not None:
                found.append(replace(point, both_arms=common.has_both_arms(guard, side)))
    return found


def _in_own_calls(
    sources: Sources,
    values: Values,
    way: Stack,
    place: int,
    side: int,
    ranks: SideRanks,
    callees: Callees,
    *,
    outside: bool,
) -> list[BranchPoint]:
    """The guards around ``way[place]``, a frame that only ``side`` is in. ``outside``: the other side has left every
    loop there."""
    frame = way[place]
    # A `finally` is left out, because every way leads there.
    guards = [guard for guard in guards_of(sources, frame, callees) if guard.condition != "finally:"]
    if is_library(frame):
        guards = [guard for guard in guards if guard.kind == "loop"]  # what it tests, the other side may never have
    further_in = [] if is_library(frame) else _jumps_further_in(sources, frame, guards)
    points = []
    for guard in (*guards, *further_in):
        given = {} if is_library(frame) else values_as_called(sources, values, guard, way, place, callees, ranks)
        point = scored(sources, values, guard, frame, side, ranks, outside=outside, given=given)
        if point is not None:
            points.append(replace(point, doubt=_AROUND) if guard in further_in and not point.doubt else point)
    return points


def _jumps_further_in(sources: Sources, frame: Frame, around: list[Guard]) -> list[Guard]:
    """The conditions before the frame's line by which its function, or a round of its loop, is left from further in.

    Example: `if path.exists(): ⏎ if digest(path) == want: ⏎ return path` before `fetch(path)` → the second `if`.
    """
    tree = sources.function(frame.file, frame.line)
    loops = [guard.span for guard in around if guard.kind == "loop"]
    return jumps_further_in(tree, frame.line, loops[-1] if loops else None) if tree is not None else []


def _around_makers(
    sources: Sources,
    values: Values,
    ways: tuple[Stack, Stack],
    at: int,
    ranks: SideRanks,
) -> list[BranchPoint]:
    """The conditions on the rank under which the objects were made, or the handlers registered, that only one side is
    in.

    Where both sides are in such objects, made in the two arms of one condition, it only says that they differ.
    """
    found: list[BranchPoint] = []
    for side in (0, 1):
        makers: dict[str, list[list[BranchPoint]]] = {}
        for made in made_on_the_way(sources, ways[side], ways[1 - side], at):
            points = (scored(sources, values, g, made.frame, side, ranks, outside=False) for g in made.guards)
            around = [replace(p, level=made.level, made=made.name) for p in points if p is not None and p.rank_like]
            makers.setdefault(made.name, []).append(around)
        # One that is made anywhere else may be the one.
        found += [p for lines in makers.values() if all(lines) for around in lines for p in around]
        for line in registered_on_the_way(sources, ways[side], ways[1 - side], at):
            points = (scored(sources, values, g, line.frame, side, ranks, outside=False) for g in line.around)
            doubt = "" if line.own else _ANOTHER_HANDLER
            if line.table:  # its key was set by the rank
                points = (p and replace(p, rank_like=True, score=BY_RANK) for p in points)
                doubt = _ENTRY_UNSEEN
            known = (replace(p, level=line.level) for p in points if p is not None and p.rank_like)
            found += (replace(p, registered=line.name, doubt=doubt) for p in known)
    arms = [{p.guard.place for p in found if p.guarded == side} for side in (0, 1)]
    return [p for p in found if p.guard.place not in arms[1 - p.guarded]]
