"""How likely the sides diverged at one guard, by the values that it tests: not at all where these are alike.

Example: `if rank == 0:` around one side alone scores highest.
"""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.condition.branch_point import BranchPoint, branch_point
from hangdoc.diagnosis.condition.scores import (
    OF_LIBRARY,
    score_of_condition,
    score_of_loop,
)
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.names import is_rank_name, pattern
from hangdoc.diagnosis.source.evaluate import goes_alike
from hangdoc.diagnosis.source.guards import CONDITIONS, Guard, guards, way_out_guards
from hangdoc.diagnosis.source.queries import set_after, set_in_some_rounds
from hangdoc.diagnosis.source.set_meanwhile import is_set_meanwhile
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.type_tests import asks_only_for_types
from hangdoc.diagnosis.source.values import SideRanks, Values, equals_rank, sides_differ
from hangdoc.model.process import Frame


# One branch for each reason why a guard decides nothing, or is scored elsewhere.
def scored(
    sources: Sources,
    values: Values,
    guard: Guard,
    frame: Frame,
    side: int,
    ranks: SideRanks,
    *,
    outside: bool,
    given: dict[str, dict[int, str]] | None = None,
    counts: frozenset[str] = frozenset(),
) -> BranchPoint | None:
    """The guard as a branch point with its score; None where its values show that the sides can't have diverged at it.

    ``side`` is under the guard, at ``frame``; ``outside``: the other side has left the statement; ``given``: the values
    of names that both sides' callers show; ``counts``: what counts the rounds of a loop that both are in, alike when
    each side came to the guard. Example: `if rank == 0:` on side 0 → a branch point that is ``rank_like``, of score 6.
    """
    if guard.names == ("__name__",):
        return None  # every rank runs the same program
    if is_library(frame):
        return (
            _scored_in_library(sources, values, guard, frame, side, ranks) if outside or guard.kind != "loop" else None
        )
    if guard.kind == "loop":
        return _scored_loop(sources, values, guard, frame, side, ranks) if outside else None  # else both may be inside
    seen = {name: values.of(frame.file, frame.function, name) for name in guard.names}
    own = {name: _name_differs(sources, values, guard, frame, name, ranks) for name in guard.names}
    shown = {name: each for name, each in (given or {}).items() if own[name] is None}
    differ = [sides_differ(shown[name], ranks) if name in shown else own[name] for name in guard.names]
    if own and all(each is False for each in own.values()):
        return None  # every value was seen and is the same on both sides
    differs, rank_like = any(differ), _depends_on_rank(guard, seen)
    if differs and not shown and not rank_like:
        tested = {name: values.tested(sources, frame.file, frame.function, guard, name) for name in guard.names}
        differs = not goes_alike(sources.function(frame.file, guard.line), guard.line, tested, ranks)
    alike = any(name in shown and each is False for name, each in zip(guard.names, differ, strict=True))
    alike = alike or not counts.isdisjoint(guard.names)
    of_item = given is not None and tests_item(sources, guard, frame.file)
    score = score_of_condition(guard, rank_like=rank_like, differs=differs, alike=alike, of_item=of_item)
    always = rank_like and all(is_rank_name(n) or n.isupper() for n in guard.names)
    telling = tuple(
        (name, tuple(sorted(each.items())))
        for name, each in shown.items()
        if sides_differ(each, ranks) and not (rank_like and equals_rank(each))
    )
    point = branch_point(guard, frame, side, score)
    counting = counts | _counts_around(sources, guard, frame)
    even = not counting.isdisjoint(guard.names)
    even = even and all(n in counting or n.isupper() or own[n] is False for n in guard.names)
    same = bool(differ) and all(each is False for each in differ)
    return replace(point, rank_like=rank_like, always=always, differs=differs, alike=same, even=even, given=telling)


def _counts_around(sources: Sources, guard: Guard, frame: Frame) -> frozenset[str]:
    """What counts the rounds of the loops around the guard, also of one that the other side has left: in each round,
    every rank has come there with the same count."""
    tree = sources.function(frame.file, guard.line)
    return frozenset(name for each in (guards(tree, guard.line) if tree is not None else ()) for name in each.rounds)


def tests_item(sources: Sources, guard: Guard, file: str) -> bool:
    """True if the guard tests what a loop around it goes over. Example: `if p.grad is None:` in `for p in params:`."""
    tree = sources.function(file, guard.line)
    tested = {name.partition(".")[0] for name in guard.names}
    loops = guards(tree, guard.line) if tree is not None else []
    return any(tested & (set(g.counters) - set(g.rounds)) for g in loops if g.kind == "loop")


def _name_differs(
    sources: Sources, values: Values, guard: Guard, frame: Frame, name: str, ranks: SideRanks
) -> bool | None:
    """Whether the value of ``name`` that the guard tested differs between the sides; None where that was not seen, as
    of a flag that a thread may have set since."""
    differs = sides_differ(values.of(frame.file, frame.function, name), ranks)
    if differs is False and is_set_meanwhile(sources, name):
        return None
    if not differs:
        return differs
    return sides_differ(values.tested(sources, frame.file, frame.function, guard, name), ranks)


def _scored_loop(
    sources: Sources, values: Values, guard: Guard, frame: Frame, side: int, ranks: SideRanks
) -> BranchPoint | None:
    """A loop that one side has left; None if both sides counted the same rounds: they diverged inside of it.

    Not so for a `while` with a way out: who leaves it there has counted the round that the other side begins.
    """
    tree = sources.function(frame.file, frame.line)
    later = set_after(tree, guard, frame.line) | set_in_some_rounds(tree, guard) if tree is not None else set()
    counting = (name for name in guard.counters if name not in later)
    counters = [sides_differ(values.of(frame.file, frame.function, name), ranks) for name in counting]
    counts_differ = any(counters)
    if False in counters and not counts_differ and not _can_be_left(sources, guard, frame):
        return None
    return replace(branch_point(guard, frame, side, score_of_loop(guard, counts_differ=counts_differ)), uneven=True)


def _can_be_left(sources: Sources, loop: Guard, frame: Frame) -> bool:
    """True for a `while` with a `break` or `return` under a condition."""
    tree = sources.function(frame.file, loop.line)
    return loop.condition.startswith("while ") and tree is not None and bool(way_out_guards(tree, loop.line))


def _scored_in_library(
    sources: Sources, values: Values, guard: Guard, frame: Frame, side: int, ranks: SideRanks
) -> BranchPoint | None:
    """A loop or condition of a library. Its conditions on the rank hang nobody, as everybody runs them."""
    if guard.kind == "loop":
        loop = _scored_loop(sources, values, guard, frame, side, ranks)
        return replace(loop, score=loop.score + OF_LIBRARY, of_library=True) if loop is not None else None
    if guard.kind not in CONDITIONS:
        return None
    differ = [sides_differ(values.of(frame.file, frame.function, name), ranks) for name in guard.names]
    if _depends_on_rank(guard, {}) or (differ and all(each is False for each in differ)):
        return None
    if not any(differ) and asks_only_for_types(sources.function(frame.file, guard.line), guard.line, guard.condition):
        return None  # every rank gives the library objects of the same types
    score = score_of_condition(guard, rank_like=False, differs=any(differ)) + OF_LIBRARY
    return replace(branch_point(guard, frame, side, score), differs=any(differ), of_library=True)


def _depends_on_rank(guard: Guard, seen: dict[str, dict[int, str]]) -> bool:
    """True if the condition names a rank, or tests a value that is the rank. ``seen``: name → rank → value."""
    if guard.kind == "decorator":
        return pattern("runs_on_one_rank").search(guard.condition) is not None
    named = any(is_rank_name(n) for n in guard.names) or pattern("rank_word").search(guard.condition) is not None
    return named or any(equals_rank(per_rank) for per_rank in seen.values())
