"""Which condition parted the ranks, and which values differed?

Two stacks share their outer frames up to a function where they stand at different lines. What parts those two
lines, or keeps one side from reaching the other's line further in, is a guard of one of them.
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
# Scores order the guards, and their distances are chosen by hand and held by the saved cases: a condition on the rank
# (+5) goes before an except suite (4.5), a loop that one side has left (3, counted 4) and values that differ (+3), and
# those before a plain condition (1, 0.01 more for each level further in); an early return (-0.2), a try body that was
# left early (0.6) and a condition that is the same everywhere (-2) come last.
_COUNTED = 0.3
"""More for a test of a remainder (`step % every`): what goes by most of the time and then not is likelier to have
changed sides than what lets everything through."""


@dataclass(frozen=True, slots=True)
class Parting:
    """The guard that parted two sides. ``guarded`` is 0 or 1: whose call stands under it; ``score`` how telling."""

    guard: Guard
    file: str
    function: str
    guarded: int
    rank_like: bool
    differs: bool
    score: float
    line: int = 0
    """The line under the guard that the guarded side came through."""
    always: bool = False
    """The condition depends on the rank alone: it never changes its mind."""
    both_arms: bool = False
    """Each side stands in another arm of the same condition."""
    uneven: bool = False
    """A loop that one side has left and the other not, with nothing that speaks against it."""
    level: int = 0
    """How far in the guard's function is, counted in user frames from the outermost."""


def diverging_guards(
    sources: Sources,
    values: Values,
    sides: tuple[Stack, Stack],
    ranks: tuple[tuple[int, ...], tuple[int, ...]],
) -> list[Parting]:
    """The guards that can have parted the sides, most telling first.

    ``sides[i]`` is a whole stack of side i (empty: nothing known), ``ranks[i]`` the ranks that follow it. Example: one
    side in `if rank == 0: save()`, the other at the barrier behind it → the `if`, ``guarded`` by the first side.
    """
    where = fork(*sides)
    ways, at, together = (where.mine, where.theirs), where.common, where.within_function
    callees = {**callees_of(sides[0]), **callees_of(sides[1])}
    found: list[Parting] = []
    if together is not None:
        found += _in_common_function(sources, values, together, ranks, callees)
    for index, chain in enumerate(ways):
        # The other side stands behind the line that this one went in by: it has left every loop further in.
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
    """Is it what programs call a rank, or a flag made of it?"""
    return any(pattern(kind).search(name) for kind in ("rank_word", "rank_flag"))


def is_left_by_exception(parting: Parting) -> bool:
    """Is the guarded side in a try body, or past it, and the other one was thrown out?"""
    return parting.guard.kind == "try" and (is_tried(parting) or not parting.guard.taken)


def is_tried(parting: Parting) -> bool:
    """Does the guarded side stand in the body of a try, or of a `with` that swallows exceptions?"""
    return parting.guard.kind == "try" and parting.guard.condition.startswith(("try:", "with "))


def caught_outside(sources: Sources, sides: tuple[Stack, Stack]) -> list[Parting]:
    """The try around a function that side 0 has begun anew, where side 1 has come further in it."""
    where = fork(*sides)
    diverged = where.within_function
    if diverged is None or diverged[0].line >= diverged[1].line:
        return []
    found = []
    for level, frame in reversed(list(enumerate(where.theirs[: where.common]))):
        for guard in reversed(guards_of(sources, frame, callees_of(sides[1]))):
            parting = Parting(guard, frame.file, plain(frame.function), 1, False, False, 0.6, frame.line, level=level)
            found += [parting] if is_tried(parting) else []
    return found[:1]


def guards_of_last_round(sources: Sources, sides: tuple[Stack, Stack]) -> list[Parting]:
    """Conditions in a loop that lead past the call of side 1, where side 0 stands before that call in the loop: in the
    round that it has behind it, one of them may have been decided otherwise. And the loops further in, innermost
    first: it has left them all."""
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
        Parting(g, f.file, plain(f.function), 1, False, False, 3.0 + level / 100, f.line, uneven=True, level=level)
        for level, f in enumerate(where.theirs[at + 1 :], at + 1)
        for g in guards_of(sources, f, callees)
        if g.kind == "loop"
    ]
    return left[::-1] + [
        Parting(g, there.file, plain(there.function), 1, False, False, 0.6, there.line, level=at)
        for g in theirs
        if g.kind in CONDITIONS and g in mine and span[0] < g.line <= span[1]
    ]


def _in_common_function(
    sources: Sources,
    values: Values,
    frames: tuple[Frame, Frame],
    ranks: tuple[tuple[int, ...], tuple[int, ...]],
    callees: Callees,
) -> list[Parting]:
    mine = [guards_of(sources, frame, callees) for frame in frames]
    # In one round of a loop that both are in, what counts the rounds is the same on both.
    rounds = {name for guard in mine[0] if guard.kind == "loop" and guard in mine[1] for name in guard.rounds}
    counted = [_sides_differ(values.of(frames[0].file, frames[0].function, name), ranks) for name in rounds]
    one_round = bool(counted) and all(each is False for each in counted)
    found: list[Parting] = []
    for index in (0, 1):
        other = mine[1 - index]
        shared = {(g.place, g.taken) for g in other}
        for guard in mine[index]:
            if (guard.place, guard.taken) in shared or guard.kind == "decorator":
                continue
            if guard.kind != "loop" and guard.names and rounds.issuperset(guard.names):
                continue
            other_line = frames[1 - index].line
            if guard.kind == "return" and other_line < guard.line:
                continue  # the other side has not come to it yet
            if one_round and guard.kind != "loop" and other_line < guard.line:
                continue  # it has not come to it in this round
            outside = not guard.span[0] <= other_line <= guard.span[1]
            again = any(g.kind == "loop" and g in other for g in mine[index])
            if guard.kind == "loop" and other_line < guard.span[0] and not again:
                continue  # nor has it come to this
            if guard.condition == "finally:" and outside:
                continue  # every way leads there; only a side that is still inside shows that this one was thrown out
            both = guard.kind in ("if", "expression") and (guard.place, not guard.taken) in shared
            scored = _scored(sources, values, guard, frames[index], index, ranks, outside)
            found += [replace(p, both_arms=both) for p in scored]
    return found


def _scored(
    sources: Sources,
    values: Values,
    guard: Guard,
    frame: Frame,
    index: int,
    ranks: tuple[tuple[int, ...], tuple[int, ...]],
    outside: bool,
) -> list[Parting]:
    """The guard as a parting, [] where it cannot have parted the sides. ``outside``: the other side has left it."""
    if guard.names == ("__name__",):
        return []  # every rank runs the same program
    seen = {name: values.of(frame.file, frame.function, name) for name in guard.names}
    differ = {name: _sides_differ(per_rank, ranks) for name, per_rank in seen.items()}
    for name in [name for name, it_does in differ.items() if it_does]:
        tested = values.tested(sources, frame.file, frame.function, guard, name)
        differ[name] = _sides_differ(tested, ranks)
    rank_like = any(is_rank_name(n) for n in guard.names) or pattern("rank_word").search(guard.condition) is not None
    rank_like = rank_like or any(_equals_rank(per_rank) for per_rank in seen.values())
    differs = any(differ.values())
    if guard.names and all(d is False for d in differ.values()) and guard.kind != "loop":
        return []  # every value was seen and is the same on both sides
    score = 1.0 + guard.depth * 0.01
    uneven = False
    if guard.kind == "loop":
        if not outside:
            return []  # both are inside, or nobody knows: the loop itself parted nobody
        counters = [_sides_differ(values.of(frame.file, frame.function, n), ranks) for n in guard.counters]
        if any(c is False for c in counters) and not any(counters):
            return []  # same count on both sides: something inside the loop parted them
        uneven, score = True, 3.0 + (1.0 if any(counters) else 0.0)
        rank_like = differs = False
    elif guard.kind == "return":
        score -= 0.2
        score += _COUNTED if " % " in guard.condition else 0.0
    elif guard.kind in CONDITIONS and " % " in guard.condition:
        score += _COUNTED
    elif guard.kind == "try":
        # An except suite says outright what happened; to have left a try body early is only one way out of it.
        body = guard.condition.startswith(("try:", "with "))
        score = 0.6 if body else 1.2 if guard.condition == "finally:" else 4.5 if guard.taken else 1.4
    elif guard.kind == "decorator":
        rank_like = pattern("runs_on_one_rank").search(guard.condition) is not None
    if differs:
        score += 3
    if rank_like and guard.kind not in ("try",):
        score += 5
    elif pattern("same_everywhere").search(guard.condition) and not differs:
        score -= 2
    always = rank_like and all(is_rank_name(n) or n.isupper() for n in guard.names)
    return [
        Parting(
            guard,
            frame.file,
            plain(frame.function),
            index,
            rank_like,
            differs,
            score,
            frame.line,
            always,
            uneven=uneven,
        )
    ]


_HIDDEN = re.compile(r"…|\.\.\.|<\w")
"""What stands in a value for something that is not told."""


def _sides_differ(per_rank: dict[int, str], ranks: tuple[tuple[int, ...], tuple[int, ...]]) -> bool | None:
    """True or False where values of both sides were seen, else None."""
    sides = [{per_rank[r] for r in side if r in per_rank} for side in ranks]
    if not sides[0] or not sides[1]:
        return None
    if any(_HIDDEN.search(value) for value in sides[0] & sides[1]):
        return None  # a masked string, a tensor: looks alike and need not be
    return sides[0].isdisjoint(sides[1])


def _equals_rank(per_rank: dict[int, str]) -> bool:
    """The value is the rank itself, on at least two ranks."""
    return len(per_rank) > 1 and all(value == str(rank) for rank, value in per_rank.items())


def wrapped_for_one_rank(stack: Stack) -> bool:
    """Does a library wrapper in the stack run the user's function on one rank only (`@rank_zero_only`)?"""
    return any(
        pattern("runs_on_one_rank").search(f.file) or pattern("runs_on_one_rank").search(f.function) for f in stack
    )


def describe(
    parting: Parting,
    sources: Sources,
    values: Values,
    ranks: tuple[tuple[int, ...], tuple[int, ...]],
    *,
    past: bool,
    doubted: bool,
) -> Branch:
    """The parting as the report shows it: the condition, and its values with how they are known.

    ``past``: the ranks have gone on since, so values that change say nothing any more. ``doubted``: it may have been
    another condition, so the path does not tell how this one was decided.
    """
    guard = parting.guard
    shown: list[BranchValue] = []
    counted = [*guard.names, *counter_values(parting, values)]
    names = counted if guard.kind == "loop" else telling_names(sources, values, parting)
    for name in names:
        by_value: dict[str, list[int]] = {}
        for rank, value in values.tested(sources, parting.file, parting.function, guard, name).items():
            by_value.setdefault(value, []).append(rank)
        if len(by_value) < 2 and (guard.kind == "loop" or any(map(_HIDDEN.search, by_value))):
            continue
        if past and not is_rank_name(name):
            continue  # what it holds now is not what it held then
        shown += [BranchValue(name, value, tuple(sorted(rs)), "now") for value, rs in by_value.items()]
    for name, per_rank in values_of_methods(values, parting, ranks).items() if not past else ():
        sides = {value: tuple(sorted(r for r, v in per_rank.items() if v == value)) for value in per_rank.values()}
        shown += [BranchValue(name, value, rs, "now") for value, rs in sides.items()]
    if guard.kind in CONDITIONS and not doubted:
        condition = guard.condition.removeprefix("if ").removesuffix(":")
        here, there = ranks[parting.guarded], ranks[1 - parting.guarded]
        for truth, side in ((guard.taken, here), (not guard.taken, there)):
            if side:
                shown.append(BranchValue(condition, str(truth), side, "inferred-from-path"))
    kind = {"return": "if"}.get(guard.kind, guard.kind)
    return Branch(parting.file, guard.line, guard.condition, kind, tuple(shown))


def telling_names(sources: Sources, values: Values, parting: Parting) -> list[str]:
    """The names in the condition whose values of now are those that were tested: none that the branch itself sets. A
    condition on the rank is explained by the rank; what else it tests may have changed since on those who went on."""
    guard = parting.guard
    tree = sources.function(parting.file, guard.line)
    first, last = guard.span[0], max(guard.span[1], parting.line)
    found = []
    for name in guard.names:
        per_rank = values.of(parting.file, parting.function, name)
        if parting.rank_like and not is_rank_name(name) and not _equals_rank(per_rank):
            continue
        changed = {*assignments(tree, name), *called_methods(tree, name)} if tree is not None else ()
        if not any(first < line <= last for line in changed):
            found.append(name)
    return found


def values_of_methods(
    values: Values, parting: Parting, ranks: tuple[tuple[int, ...], ...]
) -> dict[str, dict[int, str]]:
    """What methods in the condition read, where it differs between the sides: name → rank → value."""
    names = parting.guard.names if parting.guard.kind in CONDITIONS else ()
    read = (values.reached(parting.file, parting.function, name) for name in names)
    return {
        name: per_rank
        for each in read
        for name, per_rank in each.items()
        if _sides_differ(per_rank, (ranks[0], ranks[1]))
    }


def counter_values(parting: Parting, values: Values) -> dict[str, dict[int, str]]:
    """Loop counters that differ: name → rank → value."""
    found = {}
    for name in parting.guard.counters:
        per_rank = values.of(parting.file, parting.function, name)
        if len(set(per_rank.values())) > 1 and all(v.lstrip("-").isdigit() for v in per_rank.values()):
            found[name] = per_rank
    return found
