"""The loop that two calls stand in, whose items choose between them: in another order, or others, on some ranks."""

from __future__ import annotations

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import END, Token
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.elsewhere.unordered import item_of_unordered
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import fork, same_function
from hangdoc.diagnosis.source.loops import item_loop, shared_item_loop
from hangdoc.model.message import Condition


def items_unordered(case: Case, gap: Gap) -> Condition | None:
    """The loop that both sides are in, if its items choose what is called, and have no order."""
    if gap.mine is None or gap.theirs is None or END in (gap.mine.op, gap.theirs.op):
        return None
    mine, theirs = (item_of_unordered(case.sources, token.stack) for token in (gap.mine, gap.theirs))
    return mine.loop if mine is not None and theirs is not None and mine.loop == theirs.loop else None


def items_differ(case: Case, gap: Gap, point: BranchPoint | None) -> Condition | None:
    """The loop in which both sides are, if its items decide which call is made.

    Either the items are called themselves and no condition explains the divergence (``for step in steps: step()``), or
    they are tested and both sides have made both calls (``for name in names: if name == 'a': …``).
    """
    if gap.mine is None or gap.theirs is None:
        return None
    where = fork(gap.mine.stack, gap.theirs.stack)
    if where.frames is None or not where.common:
        return None
    (a, _), caller = where.frames, where.mine[where.common - 1]
    tree = case.sources.function(caller.file, caller.line)
    found = None
    if tree is not None and point is None:
        found = item_loop(tree, caller.line, plain(a.function))
    if found is None and _both_made_both(case, gap.mine, gap.theirs):
        return _chosen_by_items(case, gap.mine, gap.theirs)
    return Condition(found[1], caller.file, found[0]) if found is not None else None


def _chosen_by_items(case: Case, mine: Token, theirs: Token) -> Condition | None:
    """The loop that both calls are in, in one function, whose items choose between them."""
    where = fork(mine.stack, theirs.stack)
    if where.frames is None or not same_function(*where.frames):
        return None
    a, b = where.frames
    tree = case.sources.function(a.file, a.line)
    found = shared_item_loop(tree, (a.line, b.line)) if tree is not None else None
    return Condition(found[1], a.file, found[0]) if found is not None else None


def _both_made_both(case: Case, mine: Token, theirs: Token) -> bool:
    programs = (case.programs.get(mine.rank), case.programs.get(theirs.rank))
    return all(p is not None and {mine.site, theirs.site} <= {t.site for t in p.tokens} for p in programs)
