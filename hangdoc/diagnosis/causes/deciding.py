"""The condition that the sides took differently, in words that many rules share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.causes.finding import others_of
from hangdoc.diagnosis.causes.phrases import cited
from hangdoc.diagnosis.condition.candidates import CONDITIONS, Parting, is_tried, telling_names, values_of_methods
from hangdoc.diagnosis.condition.choice import also_on_the_way
from hangdoc.diagnosis.condition.loop_counts import is_inside
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.source.guards import guards
from hangdoc.model.message import Condition, Does, Joined, Message, Ranks, Values, Verb


def what_decided(case: Case, blame: Blame[Explanation]) -> Message:
    """The condition that the sides took differently, and its values; '' where none was found."""
    found = blame.diverged
    if found is None or not found.partings:
        return ""
    sides = (blame.culprits, others_of(case, blame))
    condition = condition_text(case, found.partings, sides, gap=found.gap)
    # Where the ranks have gone on since, the values of now say nothing.
    return condition if found.past else [condition, values_text(case, found.partings[0], sides)]


def condition_text(
    case: Case, partings: Sequence[Parting], sides: tuple[tuple[int, ...], tuple[int, ...]], *, gap: Gap | None = None
) -> Message:
    """'`if loss < best:` (train.py:41) was True on rank 1 and False on rank 0'; ``sides[0]`` are the culprits."""
    parting = partings[0]
    condition = cited(parting.guard, parting.file)
    also = also_on_the_way(partings)
    if also:
        either = Joined([condition, *(cited(p.guard, p.file) for p in also)], " or ")
        return [either, " went differently on ", Ranks(sides[0]), " than on ", Ranks(sides[1])]
    here, there = sides[parting.guarded], sides[1 - parting.guarded]
    kind = parting.guard.kind
    if kind in CONDITIONS:
        return [condition, _truth(case, parting, gap, here, there)]
    if kind == "match":
        return [condition, " was taken on ", Ranks(here), " and not on ", Ranks(there)]
    if kind == "loop":
        return [condition, " goes on on ", Ranks(here), " and has ended on ", Ranks(there)]
    if kind == "try":
        return _exception(parting, condition, here, there)
    if kind == "decorator":
        return [condition, _decorated(parting, here, there)]
    return condition


def _truth(case: Case, parting: Parting, gap: Gap | None, here: tuple[int, ...], there: tuple[int, ...]) -> Message:
    taken = parting.guard.taken
    if may_run_another(case, parting):
        return [f" was {taken} on ", Ranks(here), "; ", Ranks(there), f" may run another {parting.function}()"]
    loop = item_of(case, parting, gap)
    if loop is not None:
        item: Message = [f" was {taken} on ", Ranks(here), ", for an item of ", loop]
        return [item, "; ", Ranks(there), " went the other way, or ", Verb(there, "has", "have"), " no such item"]
    truths: list[Message] = [[f"{taken} on ", Ranks(here)], [f"{not taken} on ", Ranks(there)]]
    if parting.guarded == 1:
        truths.reverse()  # the culprits' side first
    return [" was ", Joined(truths, " and ")]


def _exception(parting: Parting, condition: Condition, here: tuple[int, ...], there: tuple[int, ...]) -> Message:
    if is_tried(parting):
        return ["an exception may have led ", Ranks(there), " out of ", condition]
    if parting.guard.taken and parting.guard.condition != "finally:":
        return [Does(here, "is", "are"), " in ", condition, ", after an exception"]
    return condition


def _decorated(parting: Parting, here: tuple[int, ...], there: tuple[int, ...]) -> Message:
    if parting.rank_like:
        return [" lets ", Ranks(here), f" alone run {parting.function}()"]
    without = f" may have had this one already, without running {parting.function}()"
    return [" keeps results: ", Ranks(there), without]


def values_text(case: Case, parting: Parting, sides: tuple[tuple[int, ...], tuple[int, ...]]) -> Message:
    """' (loss = 0.5 on rank 1, 0.7 on ranks 0 and 2)' for each name that shows why the condition went as it did."""
    tested = [
        (name, case.values.tested(case.sources, parting.file, parting.function, parting.guard, name))
        for name in telling_names(case.sources, case.values, parting)
    ]
    found = [(name, per_rank) for name, per_rank in tested if len(set(per_rank.values())) > 1]
    found += values_of_methods(case.values, parting, sides).items()
    return [[f" ({name} = ", Values(per_rank), ")"] for name, per_rank in found]


def may_run_another(case: Case, parting: Parting | None) -> bool:
    """True if several classes have a method of this name: the other side may have run another one.

    Example: the guard is in ``Tower.forward``, and ``Head.forward`` exists as well.
    """
    return parting is not None and parting.level > 0 and case.sources.methods(parting.function) > 1


def item_of(case: Case, parting: Parting | None, gap: Gap | None) -> Condition | None:
    """The loop whose items the condition tests, if the other side is not in it: its loop may have had other items.

    Example: ``if name.endswith(".bias"):`` in ``for name in names:`` → the `for`.
    """
    tree = case.sources.function(parting.file, parting.guard.line) if parting is not None else None
    if parting is None or gap is None or tree is None:
        return None
    tested = {name.partition(".")[0] for name in parting.guard.names}
    loops = [g for g in guards(tree, parting.guard.line) if g.kind == "loop"]
    loop = next((g for g in reversed(loops) if tested & (set(g.counters) - set(g.rounds))), None)
    token = (gap.mine, gap.theirs)[1 - parting.guarded]
    if loop is None or (token is not None and is_inside(token, replace(parting, guard=loop))):
        return None
    return cited(loop, parting.file)
