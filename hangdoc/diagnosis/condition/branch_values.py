"""The values in a branch point's condition, and the branch as the report shows it.

Only values that say why the condition went as it did are shown: not those that the branch itself sets, and not those
that have changed since. Example: `if loss < best:`, seen just after it → loss = 1 on rank 0 and 3 on rank 1, best = 2,
and, by the lines they are at, `loss < best` True on rank 0 and False on rank 1.
"""

from __future__ import annotations

from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.frames.names import is_rank_name
from hangdoc.diagnosis.source.evaluate import goes_alike
from hangdoc.diagnosis.source.guards import CONDITIONS
from hangdoc.diagnosis.source.queries import assignments, called_methods
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.values import SideRanks, Values, equals_rank, is_hidden, sides_differ
from hangdoc.model.diagnosis import Branch, BranchValue


def describe(
    point: BranchPoint,
    sources: Sources,
    values: Values,
    ranks: SideRanks,
    *,
    past: bool,
    doubted: bool,
) -> Branch:
    """The guard as the report shows it: the condition, and its values with how they are known.

    ``past``: the ranks have gone on since, so today's values of what changes say nothing. ``doubted``: another
    condition may have decided it, so the path does not show how this one was decided. Example: `if loss < best:` → that
    condition of kind 'if', with loss and best as seen now and its truth on each side, inferred from the path.
    """
    guard = point.guard
    shown = _values_now(point, sources, values, past=past) if not is_of_later(sources, values, point, ranks) else []
    for name, given in point.given if not past else ():
        shown = [each for each in shown if each.name != name] + _by_value(name, dict(given))
    for name, per_rank in values_of_methods(values, point, ranks).items() if not past else ():
        shown += _by_value(name, per_rank)
    if guard.kind in CONDITIONS and not doubted:
        condition = guard.condition.removeprefix("if ").removesuffix(":")
        here, there = ranks[point.guarded], ranks[1 - point.guarded]
        for truth, side in ((guard.taken, here), (not guard.taken, there)):
            if side and not (point.own_arm and side is here):  # these never came to it
                shown.append(BranchValue(condition, str(truth), side, "inferred-from-path"))
    kind = {"return": "if"}.get(guard.kind, guard.kind)
    return Branch(point.file, guard.line, guard.condition, kind, tuple(shown))


def is_of_later(sources: Sources, values: Values, point: BranchPoint, ranks: SideRanks) -> bool:
    """True if by the values of now the condition goes the same way on both sides, so that one of them has set them
    anew since it was tested. Example: `if page is not None:` with the page of a later round on the side that once had
    none."""
    guard = point.guard
    seen = {name: values.tested(sources, point.file, point.function, guard, name) for name in guard.names}
    if point.rank_like or guard.kind not in CONDITIONS or not seen:
        return False  # the rank is worth showing, whatever else has changed
    if any(sides_differ(each, ranks) is None for each in seen.values()):
        return False
    return goes_alike(sources.function(point.file, guard.line), guard.line, seen, ranks)


def _values_now(point: BranchPoint, sources: Sources, values: Values, *, past: bool) -> list[BranchValue]:
    """The values of the condition's names that are still those that were tested, and a loop's counts that differ."""
    guard = point.guard
    counted = [*guard.names, *counter_values(point, values)]
    shown: list[BranchValue] = []
    for name in counted if guard.kind == "loop" else telling_names(sources, values, point):
        found = _by_value(name, values.tested(sources, point.file, point.function, guard, name))
        if len(found) < 2 and (guard.kind == "loop" or any(is_hidden(each.value) for each in found)):
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
    Example: of `if loss < best: best = loss`, seen inside of it → ['loss'].
    """
    guard = point.guard
    tree = sources.function(point.file, guard.line)
    first, last = guard.span[0], max(guard.span[1], point.line)
    found = []
    for name in guard.names:
        per_rank = values.of(point.file, point.function, name)
        if point.rank_like and not is_rank_name(name) and not equals_rank(per_rank):
            continue
        changed = {*assignments(tree, name), *called_methods(tree, name)} if tree is not None else ()
        if not any(first < line <= last for line in changed):
            found.append(name)
    return found


def values_of_methods(values: Values, point: BranchPoint, ranks: SideRanks) -> dict[str, dict[int, str]]:
    """Name → rank → value of the attributes that methods in the condition read, where the sides differ.

    Example: `if plan.due():`, where `due` reads `self.every` → {'plan.every': {0: '5', 1: '10'}}.
    """
    names = point.guard.names if point.guard.kind in CONDITIONS else ()
    read = (values.reached(point.file, point.function, name) for name in names)
    return {name: per_rank for each in read for name, per_rank in each.items() if sides_differ(per_rank, ranks)}


def counter_values(point: BranchPoint, values: Values) -> dict[str, dict[int, str]]:
    """Name → rank → value of the loop's counters that differ between ranks. Example: {'step': {0: '7', 1: '8'}}."""
    found = {}
    for name in point.guard.counters:
        per_rank = values.of(point.file, point.function, name)
        if len(set(per_rank.values())) > 1 and all(v.lstrip("-").isdigit() for v in per_rank.values()):
            found[name] = per_rank
    return found
