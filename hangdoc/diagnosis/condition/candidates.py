"""The conditions at which the ranks can have diverged, and the values that differed.

Two stacks share their outer frames up to a function in which they are at different lines. A guard of one of these
lines decides which of the two is reached, or keeps one side from reaching the other's line further in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from hangdoc.diagnosis.condition.stack_comparison import (
    Callees,
    callees_of,
    guards_of,
    has_returned,
)
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.names import pattern
from hangdoc.diagnosis.frames.stacks import fork
from hangdoc.diagnosis.source.guards import Guard, Sources
from hangdoc.diagnosis.source.queries import assignments, called_methods
from hangdoc.diagnosis.source.values import Values
from hangdoc.model.diagnosis import Branch, BranchValue
from hangdoc.model.process import Frame, Stack

CONDITIONS = ("if", "return", "expression")
"""Kinds of guards that are one test, true on one side and false on the other."""
# Scores order the guards. Their distances are chosen by hand and held by the saved cases: a condition on the rank goes
# before an except suite, a loop that one side has left and values that differ, and those before a plain condition.
_PLAIN = 1.0
"""Any condition, to begin with."""
_PER_LEVEL = 0.01
"""More for each level further in."""
_ON_RANK = 5.0
"""More for a condition on the rank."""
_VALUES_DIFFER = 3.0
"""More where the values in the condition differ between the sides."""
_LEFT_LOOP = 3.0
"""A loop that one side has left and the other has not."""
_COUNT_DIFFERS = 1.0
"""More where the loop's counter differs between the sides."""
_EXCEPT_SUITE = 4.5
"""A side in an except suite: it says outright what happened."""
_SKIPPED_HANDLER = 1.4
"""A handler that would have jumped past the line."""
_FINALLY = 1.2
_TRY_BODY = 0.6
"""A try body that the other side left: an exception is only one way out of it."""
_EARLY_RETURN = -0.2
_REMAINDER = 0.3
"""More for a test of a remainder (`step % every`): a condition that is seldom true is likelier to differ between the
sides than one that is nearly always true."""
_SAME_EVERYWHERE = -2.0
"""A condition that is the same on every rank by its words (`self.training`), whose values do not differ."""


@dataclass(frozen=True, slots=True)
class BranchPoint:
    """A guard at which two sides can have diverged.

    ``guarded``: the side (0 or 1) whose call is under the guard. ``rank_like``: its condition depends on the rank.
    ``differs``: a value in it differs between the sides. ``score``: how telling it is, see the weights above.
    """

    guard: Guard
    file: str
    function: str
    guarded: int
    rank_like: bool
    differs: bool
    score: float
    line: int = 0
    """The line under the guard that the guarded side is at."""
    always: bool = False
    """The condition depends on the rank alone, so it never changes on one rank."""
    both_arms: bool = False
    """The sides are in the two arms of one condition."""
    uneven: bool = False
    """One side has left this loop and the other has not; no counter contradicts that."""
    level: int = 0
    """How far in the guard's function is, counted in user frames; 0 is the outermost."""


def diverging_guards(
    sources: Sources,
    values: Values,
    sides: tuple[Stack, Stack],
    ranks: tuple[tuple[int, ...], tuple[int, ...]],
) -> list[BranchPoint]:
    """The guards at which the sides can have diverged, most telling first.

    ``sides[i]`` is a whole stack of side i (empty: nothing known), ``ranks[i]`` the ranks that follow it. Example: side
    0 in `if rank == 0: save()`, side 1 at the barrier after it → the `if`, whose ``guarded`` side is 0.
    """
    where = fork(*sides)
    ways, at, together = (where.mine, where.theirs), where.common, where.within_function
    callees = {**callees_of(sides[0]), **callees_of(sides[1])}
    found: list[BranchPoint] = []
    if together is not None:
        found += _in_common_function(sources, values, together, ranks, callees)
    for index, chain in enumerate(ways):
        # If the other side is past the line that this one is inside of, it has left every loop further in.
        other = ways[1 - index]
        passed = other[at].line > chain[at].line if together else has_returned(sources, other, chain, at)
        for level, frame in enumerate(chain[at + 1 if together else at :], at + 1):
            for guard in guards_of(sources, frame, callees):
                if guard.condition == "finally:":
                    continue  # every way leads there
                scored = _scored(sources, values, guard, frame, index, ranks, passed)
                found += [replace(p, level=level) for p in scored]
    return sorted(found, key=lambda p: -p.score)


def is_rank_name(name: str) -> bool:
    """True if programs use such a name for a rank, or for a flag made of it. Examples: 'local_rank', 'is_main'."""
    return any(pattern(kind).search(name) for kind in ("rank_word", "rank_flag"))


def is_left_by_exception(point: BranchPoint) -> bool:
    """True if the other side must have raised: the guarded one is in a try body, or past a handler that jumps."""
    return point.guard.kind == "try" and (is_tried(point) or not point.guard.taken)


def is_tried(point: BranchPoint) -> bool:
    """True if the guarded side is in the body of a try, or of a `with` that swallows exceptions."""
    return point.guard.kind == "try" and point.guard.condition.startswith(("try:", "with "))


def caught_outside(sources: Sources, sides: tuple[Stack, Stack]) -> list[BranchPoint]:
    """The innermost try around a function that side 0 has started again, where side 1 is further on in it.

    Example: `try: step()` in a loop; side 0 is at step:1, side 1 at step:5 → the try, as a list of one.
    """
    where = fork(*sides)
    diverged = where.within_function
    if diverged is None or diverged[0].line >= diverged[1].line:
        return []
    found = []
    for level, frame in reversed(list(enumerate(where.theirs[: where.common]))):
        for guard in reversed(guards_of(sources, frame, callees_of(sides[1]))):
            function = plain(frame.function)
            point = BranchPoint(guard, frame.file, function, 1, False, False, _TRY_BODY, frame.line, level=level)
            found += [point] if is_tried(point) else []
    return found[:1]


def guards_of_last_round(sources: Sources, sides: tuple[Stack, Stack]) -> list[BranchPoint]:
    """The guards of side 0's last round of a loop that both sides are in, where side 0 is before side 1's call.

    First the loops further in than the common one, innermost first: side 0 has left them all. Then the conditions in
    the common loop that lead to side 1's call: in its last round, side 0 may have decided one of them differently.
    """
    where = fork(*sides)
    diverged = where.within_function
    if diverged is None or diverged[0].line >= diverged[1].line:
        return []
    at, there = where.common, diverged[1]
    callees = callees_of(sides[1])
    mine, theirs = guards_of(sources, diverged[0], callees_of(sides[0])), guards_of(sources, there, callees)
    loops = [g for g in theirs if g.kind == "loop" and g in mine]
    if not loops:
        return []
    span = loops[-1].span
    left = [
        BranchPoint(
            g, f.file, plain(f.function), 1, False, False, _LEFT_LOOP + level / 100, f.line, uneven=True, level=level
        )
        for level, f in enumerate(where.theirs[at + 1 :], at + 1)
        for g in guards_of(sources, f, callees)
        if g.kind == "loop"
    ]
    return left[::-1] + [
        BranchPoint(g, there.file, plain(there.function), 1, False, False, _TRY_BODY, there.line, level=at)
        for g in theirs
        if g.kind in CONDITIONS and g in mine and span[0] < g.line <= span[1]
    ]


def _in_common_function(
    sources: Sources,
    values: Values,
    frames: tuple[Frame, Frame],
    ranks: tuple[tuple[int, ...], tuple[int, ...]],
    callees: Callees,
) -> list[BranchPoint]:
    """The guards in the function that both sides are in. ``frames[i]`` and ``ranks[i]`` are those of side i."""
    guards = [guards_of(sources, frame, callees) for frame in frames]
    # In one round of a loop that both are in, what counts the rounds is the same on both.
    rounds = {name for guard in guards[0] if guard.kind == "loop" and guard in guards[1] for name in guard.rounds}
    counted = [_sides_differ(values.of(frames[0].file, frames[0].function, name), ranks) for name in rounds]
    one_round = bool(counted) and all(each is False for each in counted)
    found: list[BranchPoint] = []
    for index in (0, 1):
        other, other_line = guards[1 - index], frames[1 - index].line
        shared = {(g.place, g.taken) for g in other}
        looping = any(g.kind == "loop" and g in other for g in guards[index])
        for guard in guards[index]:
            if (guard.place, guard.taken) in shared or guard.kind == "decorator":
                continue
            if guard.kind != "loop" and guard.names and rounds.issuperset(guard.names):
                continue
            if not _was_decided(guard, other_line, looping=looping, one_round=one_round):
                continue
            outside = not guard.span[0] <= other_line <= guard.span[1]
            if guard.condition == "finally:" and outside:
                continue  # every way leads there; only a side that is still inside shows that this one raised
            both = guard.kind in ("if", "expression") and (guard.place, not guard.taken) in shared
            scored = _scored(sources, values, guard, frames[index], index, ranks, outside)
            found += [replace(p, both_arms=both) for p in scored]
    return found


def _was_decided(guard: Guard, other_line: int, *, looping: bool, one_round: bool) -> bool:
    """False if the other side has not reached the guard of this one.

    ``looping``: both are in one loop, so a side at an earlier line may have passed the guard in an earlier round;
    ``one_round``: the loop's counter says that both are in the same round. Example: an early return at line 9 and the
    other side at line 5 → False.
    """
    if guard.kind == "loop":
        return looping or other_line >= guard.span[0]
    return other_line >= guard.line or not (one_round or guard.kind == "return")


def _scored(
    sources: Sources,
    values: Values,
    guard: Guard,
    frame: Frame,
    index: int,
    ranks: tuple[tuple[int, ...], tuple[int, ...]],
    outside: bool,
) -> list[BranchPoint]:
    """The guard with its score, as a list of one; [] where the sides cannot have diverged at it.

    ``index``: the side that is under the guard, at ``frame``; ``outside``: the other side has left the statement.
    Example: `if rank == 0:` on side 0 → one BranchPoint, ``rank_like``, of score 6.
    """
    if guard.names == ("__name__",):
        return []  # every rank runs the same program
    if guard.kind == "loop":
        return _scored_loop(values, guard, frame, index, ranks) if outside else []  # else both may be inside
    seen = {name: values.of(frame.file, frame.function, name) for name in guard.names}
    differ = {name: _sides_differ(per_rank, ranks) for name, per_rank in seen.items()}
    for name in [name for name, it_does in differ.items() if it_does]:
        tested = values.tested(sources, frame.file, frame.function, guard, name)
        differ[name] = _sides_differ(tested, ranks)
    if guard.names and all(d is False for d in differ.values()):
        return []  # every value was seen and is the same on both sides
    differs, rank_like = any(differ.values()), _depends_on_rank(guard, seen)
    always = rank_like and all(is_rank_name(n) or n.isupper() for n in guard.names)
    score = _score_of_kind(guard)
    if differs:
        score += _VALUES_DIFFER
    if rank_like and guard.kind != "try":
        score += _ON_RANK
    elif pattern("same_everywhere").search(guard.condition) and not differs:
        score += _SAME_EVERYWHERE
    return [BranchPoint(guard, frame.file, plain(frame.function), index, rank_like, differs, score, frame.line, always)]


def _scored_loop(
    values: Values, guard: Guard, frame: Frame, index: int, ranks: tuple[tuple[int, ...], tuple[int, ...]]
) -> list[BranchPoint]:
    """A loop that one side has left; [] if both sides counted the same rounds: they diverged inside of it."""
    counters = [_sides_differ(values.of(frame.file, frame.function, n), ranks) for n in guard.counters]
    if any(c is False for c in counters) and not any(counters):
        return []
    score = _LEFT_LOOP + (_COUNT_DIFFERS if any(counters) else 0.0)
    if pattern("same_everywhere").search(guard.condition):
        score += _SAME_EVERYWHERE
    return [BranchPoint(guard, frame.file, plain(frame.function), index, False, False, score, frame.line, uneven=True)]


def _score_of_kind(guard: Guard) -> float:
    """The score of a guard that is no loop, before its values and the rank count."""
    if guard.kind == "try":
        if guard.condition.startswith(("try:", "with ")):
            return _TRY_BODY
        return _FINALLY if guard.condition == "finally:" else _EXCEPT_SUITE if guard.taken else _SKIPPED_HANDLER
    score = _PLAIN + guard.depth * _PER_LEVEL
    score += _EARLY_RETURN if guard.kind == "return" else 0.0
    return score + (_REMAINDER if guard.kind in CONDITIONS and " % " in guard.condition else 0.0)


def _depends_on_rank(guard: Guard, seen: dict[str, dict[int, str]]) -> bool:
    """True if the condition names a rank, or tests a value that is the rank. ``seen``: name → rank → value."""
    if guard.kind == "decorator":
        return pattern("runs_on_one_rank").search(guard.condition) is not None
    named = any(is_rank_name(n) for n in guard.names) or pattern("rank_word").search(guard.condition) is not None
    return named or any(_equals_rank(per_rank) for per_rank in seen.values())


_HIDDEN = re.compile(r"…|\.\.\.|<\w")
"""What a value shows in place of something that was shortened, masked or is no plain value."""


def _sides_differ(per_rank: dict[int, str], ranks: tuple[tuple[int, ...], tuple[int, ...]]) -> bool | None:
    """Whether the sides have no value in common; None where a side's values were not seen, or are hidden.

    Example: {0: 'True', 1: 'False'} of ranks ((0,), (1,)) → True.
    """
    sides = [{per_rank[r] for r in side if r in per_rank} for side in ranks]
    if not sides[0] or not sides[1]:
        return None
    if any(_HIDDEN.search(value) for value in sides[0] & sides[1]):
        return None  # a masked string, a tensor: looks alike and need not be
    return sides[0].isdisjoint(sides[1])


def _equals_rank(per_rank: dict[int, str]) -> bool:
    """True if the value is the rank itself, on at least two ranks."""
    return len(per_rank) > 1 and all(value == str(rank) for rank, value in per_rank.items())


def wrapped_for_one_rank(stack: Stack) -> bool:
    """True if a library's wrapper in the stack runs the user's function on one rank only (`@rank_zero_only`)."""
    return any(
        pattern("runs_on_one_rank").search(f.file) or pattern("runs_on_one_rank").search(f.function) for f in stack
    )


def describe(
    point: BranchPoint,
    sources: Sources,
    values: Values,
    ranks: tuple[tuple[int, ...], tuple[int, ...]],
    *,
    past: bool,
    doubted: bool,
) -> Branch:
    """The guard as the report shows it: the condition, and its values with how they are known.

    ``past``: the ranks have gone on since, so today's values of what changes say nothing. ``doubted``: another
    condition may have decided it, so the path does not show how this one was decided.
    """
    guard = point.guard
    shown = _values_now(point, sources, values, past=past)
    for name, per_rank in values_of_methods(values, point, ranks).items() if not past else ():
        shown += _by_value(name, per_rank)
    if guard.kind in CONDITIONS and not doubted:
        condition = guard.condition.removeprefix("if ").removesuffix(":")
        here, there = ranks[point.guarded], ranks[1 - point.guarded]
        for truth, side in ((guard.taken, here), (not guard.taken, there)):
            if side:
                shown.append(BranchValue(condition, str(truth), side, "inferred-from-path"))
    kind = {"return": "if"}.get(guard.kind, guard.kind)
    return Branch(point.file, guard.line, guard.condition, kind, tuple(shown))


def _values_now(point: BranchPoint, sources: Sources, values: Values, *, past: bool) -> list[BranchValue]:
    """The values of the condition's names that are still those that were tested."""
    guard = point.guard
    counted = [*guard.names, *counter_values(point, values)]
    shown: list[BranchValue] = []
    for name in counted if guard.kind == "loop" else telling_names(sources, values, point):
        found = _by_value(name, values.tested(sources, point.file, point.function, guard, name))
        if len(found) < 2 and (guard.kind == "loop" or any(_HIDDEN.search(each.value) for each in found)):
            continue
        if past and not is_rank_name(name):
            continue  # its value now is not its value then
        shown += found
    return shown


def _by_value(name: str, per_rank: dict[int, str]) -> list[BranchValue]:
    """One entry for each value. Example: {0: 'a', 1: 'b', 2: 'a'} → 'a' of ranks (0, 2) and 'b' of rank (1,)."""
    ranks: dict[str, list[int]] = {}
    for rank, value in per_rank.items():
        ranks.setdefault(value, []).append(rank)
    return [BranchValue(name, value, tuple(sorted(rs)), "now") for value, rs in ranks.items()]


def telling_names(sources: Sources, values: Values, point: BranchPoint) -> list[str]:
    """The names in the condition whose values now are those that were tested: none that the branch itself sets.

    A condition on the rank is explained by the rank alone: its other names may have changed on ranks that went on.
    """
    guard = point.guard
    tree = sources.function(point.file, guard.line)
    first, last = guard.span[0], max(guard.span[1], point.line)
    found = []
    for name in guard.names:
        per_rank = values.of(point.file, point.function, name)
        if point.rank_like and not is_rank_name(name) and not _equals_rank(per_rank):
            continue
        changed = {*assignments(tree, name), *called_methods(tree, name)} if tree is not None else ()
        if not any(first < line <= last for line in changed):
            found.append(name)
    return found


def values_of_methods(
    values: Values, point: BranchPoint, ranks: tuple[tuple[int, ...], ...]
) -> dict[str, dict[int, str]]:
    """Name → rank → value of the attributes that methods in the condition read, where the sides differ."""
    names = point.guard.names if point.guard.kind in CONDITIONS else ()
    read = (values.reached(point.file, point.function, name) for name in names)
    return {
        name: per_rank
        for each in read
        for name, per_rank in each.items()
        if _sides_differ(per_rank, (ranks[0], ranks[1]))
    }


def counter_values(point: BranchPoint, values: Values) -> dict[str, dict[int, str]]:
    """Name → rank → value of the loop's counters that differ between ranks."""
    found = {}
    for name in point.guard.counters:
        per_rank = values.of(point.file, point.function, name)
        if len(set(per_rank.values())) > 1 and all(v.lstrip("-").isdigit() for v in per_rank.values()):
            found[name] = per_rank
    return found
