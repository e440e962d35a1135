"""Which loop a side has left, where the condition around it went alike on all ranks.

Once a side is in the next round of the loop that all are in, the condition that leads the other side to its call was
decided in the round before. What only counts the rounds was the same there: the sides took it alike. Then the first has
left a loop further in. Example, rank 1 at line 2 in the next step, the others in generate():

    1  for step in range(steps):
    2      train(step)
    3      if step % cfg.every == 0:
    4          generate()             # for position in range(longest): …, with a break

gives `for position in range(longest):`, not `if step % cfg.every == 0:`.

Of two loops around the other side's call, the outer one may have ended, or the inner one been left earlier in the last
round that both were in. Who goes over a list that the program writes out has as many items on every rank: there the
inner one is likelier. Example: of `for prompt in ["a", "b"]: ⏎ while True: ⏎ step() ⏎ if drawn(): ⏎ break` the `while`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from hangdoc.diagnosis.bounds import SCANNED
from hangdoc.diagnosis.calls.history import Token
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.last_round import guards_of_last_round
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.names import pattern
from hangdoc.diagnosis.source.equal_counts import is_over_written
from hangdoc.diagnosis.source.guards import CONDITIONS, guards, way_out_guards
from hangdoc.diagnosis.source.loops import without_wrappers
from hangdoc.diagnosis.source.settings import place_of
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import last_name, walk
from hangdoc.diagnosis.source.values import SideRanks, sides_differ
from hangdoc.model.process import Frame, Stack


def inner_loop_left(
    case: Case,
    tokens: tuple[Token | None, Token | None],
    possible: Sequence[BranchPoint],
    sides: tuple[Stack, Stack],
    ranks: SideRanks,
) -> list[BranchPoint]:
    """``possible``; where its first is a condition that went alike on both sides, the loops that one side has left."""
    first = possible[0] if possible else None
    if first is None or first.guard.kind not in CONDITIONS or first.rank_like or first.differs or first.both_arms:
        return list(possible)
    if not _goes_alike(case, first, ranks):
        return list(possible)
    inside = first.guarded
    swapped = (sides[1 - inside], sides[inside])
    loops = [p for p in guards_of_last_round(case.sources, swapped) if p.uneven and not is_library(_at(p))]
    loops = [p for p in loops if _came_out_of(case, tokens[1 - inside], tokens[inside], p)]
    ending = [p for p in loops if can_end_early(case, p)]
    loops = ending or loops[: len(loops) == 1]
    if not loops:
        return list(possible)
    alike = (first.file, first.guard.place)
    rest = [p for p in possible if (p.file, p.guard.place) != alike]
    return [*(replace(p, guarded=inside) for p in loops), *rest]


def left_further_in(case: Case, possible: list[BranchPoint]) -> list[BranchPoint]:
    """``possible``; where its first is a loop over what the program writes out, the loop further in that can end early
    comes first."""
    inner = further_in(case, possible) if possible and not possible[0].differs else None
    if inner is not None and _is_over_written(case.sources, possible[0]):
        return [inner, *(p for p in possible if p is not inner)]
    return possible if case.has_history else _without_written(case.sources, possible)


def _without_written(sources: Sources, possible: list[BranchPoint]) -> list[BranchPoint]:
    """``possible``, without the loops that it begins with which end alike on all ranks, where a condition on the way to
    them follows: without the ranks' calls, what is around such a loop may have kept a side from it.

    Example: [`for p in params:` in sync(params), called as `sync([w, b])`, `if spike: continue` before that call] → the
    `if`.
    """
    rest = possible
    while rest and rest[0].uneven and not rest[0].differs and _is_over_written(sources, rest[0]):
        rest = rest[1:]
    return rest if rest and rest[0].guard.kind in (*CONDITIONS, "return") else possible


def further_in(case: Case, points: Sequence[BranchPoint]) -> BranchPoint | None:
    """The loop inside of the first of ``points``, a loop, that the side outside may have left early instead.

    Or that had fewer items there: what a function of the program makes of a batch is not as long on every rank.
    """
    outer = points[0]
    if not outer.uneven or outer.of_library or outer.guard.in_header:
        return None
    inside = (
        p for p in points[1:] if p.uneven and not p.of_library and (p.guarded, p.own_arm) == (outer.guarded, False)
    )
    inside = (p for p in inside if (p.file, p.guard.place) != (outer.file, outer.guard.place))
    inside = (p for p in inside if p.level > outer.level or _holds(outer, p))
    return next((p for p in inside if can_end_early(case, p) or _is_over_made(case.sources, p)), None)


def _is_over_made(sources: Sources, loop: BranchPoint) -> bool:
    return bool(makes_items(sources, loop))


def makes_items(sources: Sources, loop: BranchPoint) -> str:
    """'pieces' of `for piece in self.pieces(doc):`, where pieces() is the program's own; '' for others."""
    at = place_of(sources, loop.file, loop.guard.line)
    loops = [n for n in walk(at.tree) if isinstance(n, ast.For) and n.lineno == loop.guard.line] if at else []
    over = without_wrappers(loops[0].iter) if len(loops) == 1 else None
    name = last_name(over.func) if isinstance(over, ast.Call) and over.args else ""
    return name if name and sources.user_definitions(name) else ""


def _holds(outer: BranchPoint, inner: BranchPoint) -> bool:
    same = (outer.file, outer.function) == (inner.file, inner.function)
    return same and outer.guard.span[0] < inner.guard.line <= outer.guard.span[1]


def _is_over_written(sources: Sources, loop: BranchPoint) -> bool:
    """True for a `for` without a way out, over a list or the like that is written out wherever it comes from."""
    at = place_of(sources, loop.file, loop.guard.line)
    return (
        at is not None
        and not way_out_guards(at.tree, loop.guard.line)
        and is_over_written(sources, at, loop.guard.line)
    )


def _at(point: BranchPoint) -> Frame:
    return Frame(point.file, point.line, point.function)


def _goes_alike(case: Case, point: BranchPoint, ranks: SideRanks) -> bool:
    """True if the condition tests what counts the rounds of a loop around it, and besides only what is set once for the
    job. A value that was seen to differ is another story."""
    tree = case.sources.function(point.file, point.guard.line)
    around = guards(tree, point.guard.line) if tree is not None else []
    rounds = {name for guard in around if guard.kind == "loop" for name in guard.rounds}
    others = [name for name in point.guard.names if name not in rounds]
    if len(others) == len(point.guard.names):
        return False
    seen = {name: sides_differ(case.values.of(point.file, point.function, name), ranks) for name in others}
    return all(
        differs is False or (differs is None and (name.isupper() or pattern("job_setting").search(name)))
        for name, differs in seen.items()
    )


def can_end_early(case: Case, loop: BranchPoint) -> bool:
    """True for a `while`, and for a loop with a `break` or `return`."""
    tree = case.sources.function(loop.file, loop.guard.line)
    way_out = tree is not None and bool(way_out_guards(tree, loop.guard.line))
    return way_out or loop.guard.condition.startswith("while ")


def _came_out_of(case: Case, outside: Token | None, inside: Token | None, loop: BranchPoint) -> bool:
    """True if the side outside made a call in the loop, and the other side's calls since then were all made in it: both
    were in one execution of it. Where no calls are recorded, as far as is known."""
    if outside is None or inside is None:
        return False
    mine, theirs = case.programs.get(outside.rank), case.programs.get(inside.rank)
    if mine is None or theirs is None:
        return True
    way = _way_into(inside, loop)
    before = mine.tokens[max(0, outside.order - SCANNED) : max(0, outside.order)]
    since = next((n for n, token in enumerate(reversed(before)) if _way_into(token, loop) == way), None)
    if way is None or since is None or inside.order < since:
        return False
    return all(_way_into(token, loop) == way for token in theirs.tokens[inside.order - since : inside.order])


def _way_into(token: Token, loop: BranchPoint) -> tuple[tuple[str, int], ...] | None:
    """The lines by which the program came to the loop that the call was made in; None for a call outside of it."""
    for n, frame in enumerate(token.stack):
        if frame.file == loop.file and plain(frame.function) == loop.function and loop.guard.holds(frame.line):
            return tuple((caller.file, caller.line) for caller in token.stack[n + 1 :])
    return None
