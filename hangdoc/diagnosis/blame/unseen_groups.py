"""Several groups, and no history: which ranks can be in one call, by the groups that frames show or the store lists.

A frame of torch's may show the call's group with its members. Where it does not, the store lists all groups that were
made, and the stack whether a call was given one; where it was, any of the rank's groups may be meant. Calls of one line
are then calls of one dimension of the job: of disjoint groups of one size, such as the rows of a mesh. Every choice of
dimensions for the lines makes a wait-for graph, and the ranks that would dissolve it alone, as one fault does, may be
to blame.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from hangdoc.diagnosis.blame.divergences import decide
from hangdoc.diagnosis.bounds import COMPARED, SCANNED, TRIED
from hangdoc.diagnosis.calls.alignment import repairs
from hangdoc.diagnosis.calls.history import GroupHistory, Token
from hangdoc.diagnosis.calls.stack_calls import apart, from_stacks, group_shown, is_given_group
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.stacks import same_line, user_stack
from hangdoc.diagnosis.source.guards import loops_around
from hangdoc.diagnosis.state.activity import python_op
from hangdoc.diagnosis.state.wait_graph import Graph, graph_of
from hangdoc.model.diagnosis import Activity, Wait
from hangdoc.model.kinds import MESSAGES, ActivityKind, Confidence

_Members = tuple[int, ...]
_Dimension = tuple[_Members, ...]
"""Disjoint groups of one size."""


def by_groups_of_store(case: Case) -> Blame[Diverged] | None:
    """The blame where calls were given groups that only the store tells of; None where none were, or nothing fits.

    To blame is the rank that most readings allow. Example: of the groups (0, 1, 2), (3, 4, 5) and (0, 2, 4), ranks 0
    and 2 are in a call that was given one, the others in the barrier of all → rank 1 has skipped it, or rank 4.
    """
    readings = list(_readings(case))
    readings = [reading for reading in readings if reading.distinct] or readings
    often = Counter(rank for reading in readings for rank in reading.suspects)
    found = [(rank, blamed) for rank in often for blamed in _blames(case, readings, rank)]
    if not found:
        return None
    first, blamed = max(
        found,
        key=lambda each: (
            *_how_likely(case, each[1]),
            _is_past_its_group(case, each[0]),
            -len(_at_its_line(case, each[0])),
            often[each[0]],
        ),
    )
    others = tuple((rank,) for rank, _ in often.most_common() if rank != first)
    if others and len(readings) == 1 and _is_awaited_in_more_groups(case, readings[0], first, others):
        sure = f"{blamed.sure}; the groups are those that the calls' frames hold, and several wait for rank {first}"
        return replace(blamed, alternatives=(), confidence=Confidence.LIKELY, sure=sure)
    if not others and _are_shown(case):
        return replace(blamed, sure=f"{blamed.sure}; the groups are those that the calls' frames hold")
    if not others and sum(rank == first for rank, _ in found) == 1:
        return replace(blamed, sure=f"{blamed.sure}; the groups are those in the store")
    point = blamed.found.branch_point
    if point is not None and point.rank_like and point.guarded == 0 and _at_its_line(case, first) == (first,):
        sure = f"{blamed.sure}; only the call of rank {first} is under a condition on the rank"
        return replace(blamed, alternatives=(), sure=sure)
    if not others:
        return replace(blamed, sure=f"{blamed.sure}; whichever of its groups each call is of")
    unknown = "" if _are_shown(case) else "; which of its groups each call is of could not be seen"
    sure = f"{blamed.sure}{unknown}"
    return replace(blamed, alternatives=others[:TRIED], confidence=Confidence.POSSIBLE, sure=sure)


def _at_its_line(case: Case, rank: int) -> tuple[int, ...]:
    """The ranks that wait at the line that this one waits at."""
    where = case.activities[rank].where
    alike = (
        r for r, a in case.activities.items() if a.where is not None and where is not None and same_line(a.where, where)
    )
    return tuple(sorted(alike)) or (rank,)


def _is_awaited_in_more_groups(case: Case, reading: _Reading, first: int, others: Iterable[tuple[int, ...]]) -> bool:
    """True if the groups of all calls are shown, and ranks in several of them wait for this one, but in one alone for
    each other suspect."""
    awaited: dict[int, set[_Members]] = {}
    for wait in reading.graph.waits if _are_shown(case) else ():
        for rank in wait.on:
            awaited.setdefault(rank, set()).add(reading.groups.get(wait.waiter, ()))
    return len(awaited.get(first, ())) > 1 and all(len(awaited.get(rank, ())) < 2 for (rank,) in others)


def _is_past_its_group(case: Case, rank: int) -> bool:
    """True if the rank is in a call of more ranks than the group in which another waits for it: the ranks of other such
    groups are past theirs as well, and whoever waits alone seldom made a group's call without the others."""
    mine = group_shown(case.activities[rank].stack)
    theirs = [group_shown(a.stack) for r, a in case.activities.items() if r != rank]
    return mine is not None and any(t is not None and rank in t[1] and set(t[1]) < set(mine[1]) for t in theirs)


def _are_shown(case: Case) -> bool:
    """True if the frame of each call shows its group."""
    calling = [a for a in case.activities.values() if a.kind == ActivityKind.IN_COLLECTIVE]
    return all(group_shown(a.stack) is not None for a in calling)


def _how_likely(case: Case, blamed: Blame[Diverged]) -> tuple[bool, bool]:
    """(False if the two sides are in different rounds of a loop, whether a condition on the rank explains it)."""
    gap, point = blamed.found.gap, blamed.found.branch_point
    sides = [token for token in (gap.mine, gap.theirs) if token is not None] if gap is not None else []
    together = len(sides) < 2 or not _in_other_rounds(case, sides[0], sides[1])
    return together, point is not None and point.rank_like


def _in_other_rounds(case: Case, mine: Token, theirs: Token) -> bool:
    """True if the counter of a loop that both are in differs."""
    for here, there in zip(reversed(user_stack(mine.stack)), reversed(user_stack(theirs.stack)), strict=False):
        if (here.file, here.function) != (there.file, there.function):
            return False
        loops = loops_around(case.sources.function(here.file, here.line), here.line)
        for name in {name for loop in loops if loop.span[0] < there.line <= loop.span[1] for name in loop.rounds}:
            seen = case.values.of(here.file, here.function, name)
            if len({seen.get(token.rank) for token in (mine, theirs)} - {None}) > 1:
                return True
    return False


@dataclass(frozen=True, slots=True)
class _Reading:
    """Which group each rank's call may be of, and who would then dissolve all waits by going on alone."""

    groups: Mapping[int, _Members]
    graph: Graph
    distinct: bool
    """No two lines are of one dimension."""
    suspects: tuple[int, ...]


def _readings(case: Case) -> Iterator[_Reading]:
    """The readings by which one rank alone can be to blame."""
    seen, store = case.activities, case.job.store
    kinds = {*MESSAGES, ActivityKind.IN_COLLECTIVE}
    if case.programs or any(a.kind not in kinds or a.moving for a in seen.values()):
        return
    world = tuple(sorted(seen))
    calling = [activity for activity in seen.values() if activity.kind == ActivityKind.IN_COLLECTIVE]
    shown = {a.rank: group for a in calling if (group := group_shown(a.stack)) is not None and a.rank in group[1]}
    lines = _lines([activity for activity in calling if activity.rank not in shown])
    if store is None and lines:
        return
    # In the order in which they were made: torch numbers them.
    made = sorted(store.groups if store is not None else (), key=lambda group: (len(group.name), group.name))
    dimensions = _dimensions([group.members for group in made if group.members != world])
    if not any(given for _, given in lines) and len(set(shown.values())) < 2:
        return
    fit = [_that_fit(ranks, given, dimensions, world) for (_, given), ranks in lines.items()]
    if math.prod(map(len, fit)) > SCANNED:
        return
    passed = {dimension for dimension in dimensions if _passes_within(seen, dimension)}
    for chosen in product(*fit):
        groups = {rank: members for rank, (_, members) in shown.items()}
        groups |= {
            rank: _group_in(dimension, rank)
            for ranks, dimension in zip(lines.values(), chosen, strict=True)
            for rank in ranks
        }
        waits = _waits(seen, groups, shown)
        if waits is None:
            continue
        graph = graph_of(waits, frozenset(world))
        suspects = tuple(rank for rank in world[:COMPARED] if graph.dissolves((rank,)))
        inner = [dimension for dimension in chosen if dimension != (world,)]
        if suspects:
            distinct = len({*inner, *passed}) == len(inner) + len(passed)
            yield _Reading(groups, graph, distinct, suspects)


def _that_fit(ranks: list[int], given: bool | None, dimensions: list[_Dimension], world: _Members) -> list[_Dimension]:
    """The dimensions that a call of these ranks can be of. ``given``: as ``is_given_group``."""
    fit = [dimension for dimension in dimensions if all(_group_in(dimension, rank) for rank in ranks)]
    return fit if given else [(world,)] if given is False else [(world,), *fit]


def _dimensions(groups: list[_Members]) -> list[_Dimension]:
    """The groups as dimensions: those that follow each other, have one size and no member in common.

    Example: (0, 1), (2, 3), (0, 2), (1, 3) → ((0, 1), (2, 3)) and ((0, 2), (1, 3)).
    """
    found: list[list[_Members]] = []
    for group in groups:
        if len(group) < 2:
            continue
        fits = (d for d in found if len(d[0]) == len(group) and all(set(group).isdisjoint(other) for other in d))
        dimension = next(fits, None)
        if dimension is None:
            found.append([group])
        else:
            dimension.append(group)
    return [tuple(dimension) for dimension in found]


def _group_in(dimension: _Dimension, rank: int) -> _Members:
    return next((group for group in dimension if rank in group), ())


def _lines(calling: list[Activity]) -> dict[tuple[Hashable, bool | None], list[int]]:
    """(line, whether the call there was given a group) → the ranks in it."""
    found: dict[tuple[Hashable, bool | None], list[int]] = {}
    for activity in calling:
        line = activity.where and (activity.where.file, activity.where.line)
        found.setdefault((line, is_given_group(activity.stack)), []).append(activity.rank)
    return found


def _passes_within(seen: Mapping[int, Activity], dimension: _Dimension) -> bool:
    """True if a message was given a group and is between members of a group of the dimension."""
    given = [a for a in seen.values() if a.kind in MESSAGES and is_given_group(a.stack)]
    return any(a.peer in _group_in(dimension, a.rank) for a in given)


def _waits(
    seen: Mapping[int, Activity], groups: Mapping[int, _Members], shown: Mapping[int, tuple[str, _Members]]
) -> tuple[Wait, ...] | None:
    """Who waits for whom under that reading; None if some call would have completed.

    A call waits for the members that are in no such call of that group. One that all members are in completes,
    wherever they called it from; what a library's words name may be several operations, so its line counts as well.
    """
    found = []
    calls = {rank: (groups.get(rank), shown.get(rank, ("",))[0], _call(activity)) for rank, activity in seen.items()}
    for rank, activity in seen.items():
        group = groups.get(rank, ())
        others = tuple(member for member in group if calls.get(member) != calls[rank])
        if group and not others:
            return None
        on = others if group else (activity.peer,) if activity.peer in seen and activity.peer is not None else ()
        if on:
            found.append(Wait(rank, on, activity.text, "stack"))
    return tuple(found)


def _call(activity: Activity) -> Hashable:
    """What the ranks of one call have in common."""
    named = python_op(activity.stack) == activity.operation
    return activity.operation if named else (activity.operation, activity.where and activity.where.line)


def _blames(case: Case, readings: list[_Reading], rank: int) -> list[Blame[Diverged]]:
    """The blames of a rank, each by the calls of a group that it holds up or waits in, the smallest group first."""
    groups = {
        reading.groups[wait.waiter]
        for reading in readings
        for wait in reading.graph.waits
        if rank in reading.suspects and rank in {*wait.on, wait.waiter} and reading.groups.get(wait.waiter)
    }
    smallest_first = sorted(groups, key=lambda group: (len(group), group))
    found = (_blamed(case, members, rank) for members in smallest_first if rank in members)
    return [blamed for blamed in found if blamed is not None]


def _of_their_groups(history: GroupHistory) -> GroupHistory:
    """The history in which the calls whose frames show their groups are of these, and match only within one."""
    tokens: dict[int, Sequence[Token]] = {}
    for rank, calls in history.tokens.items():
        shown = group_shown(calls[0].stack)
        # As a place around the call: what one line calls of two groups are two calls.
        around = ((f"group {shown[0]}", 0, str(shown[1])),) if shown is not None else ()
        tokens[rank] = [replace(each, group=shown or each.group, site=(*each.site, *around)) for each in calls]
    return replace(history, tokens=tokens)


def _blamed(case: Case, members: _Members, rank: int) -> Blame[Diverged] | None:
    """The blame of the rank if its call is the one that does not match in the group."""
    for history in from_stacks({r: a for r, a in case.activities.items() if r in members}):
        candidates = [found for found in repairs(apart(_of_their_groups(history))) if found.culprits == (rank,)]
        if candidates:
            return decide(case, candidates, proved=True)
    return None
