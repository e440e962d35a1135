"""The conditions under which one rank alone has drawn from the generator by which all ranks choose their partners.

Example: all ranks seed alike and `random.shuffle(order)` pairs them, and the counters say that line 47 has run on rank
2 and on no other rank, of

    46  while not np.isfinite(rows).all():
    47      start = random.randrange(len(self.rows) - size)

→ `while not np.isfinite(rows).all():`. From then on, rank 2 draws other partners. Where the counters say nothing of
that line, as of a function that was called a few times, its condition is one under which the rank may have drawn.
"""

from __future__ import annotations

import ast

from hangdoc.diagnosis.condition.elsewhere.left_behind import MOST, decides, is_alike, is_while
from hangdoc.diagnosis.condition.elsewhere.ran_alone import ran_alone
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.draws import drawn_for, drawn_in, may_be_the_same
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.message_calls import message_calls
from hangdoc.diagnosis.source.settings import place_of
from hangdoc.diagnosis.source.syntax import enclosing_function, has_blocks, holds, walk
from hangdoc.model.message import Condition


def drawn_alone(case: Case, rank: int) -> list[Condition]:
    """These conditions, each once; [] where there are none, or more than say something."""
    chosen = chooses_by(case, rank)
    others = tuple(sorted(case.seen - {rank}))
    if not chosen or not others:
        return []
    lines = set(case.table.ran_alone((rank,), others)) if case.table else set()
    found: dict[Condition, None] = {}
    for each in ran_alone(case, ((rank,), others)):
        under = [line for file, line in lines if file == each.file and each.guard.holds(line)]
        if each.side == 0 and any(may_be_the_same(_drawn_at(case, each.file, line), chosen) for line in under):
            found[Condition(each.guard.condition, each.file, each.guard.line)] = None
    return list(found) if len(found) <= MOST else []


def may_have_drawn(case: Case, rank: int) -> list[Condition]:
    """The conditions, that may differ between the ranks, under which the program draws from that generator, where the
    counters do not say whether the rank has; [] where there are none, or more than say something."""
    chosen = chooses_by(case, rank)
    found: dict[Condition, None] = {}
    for file, tree in case.sources.user_trees() if chosen else ():
        for node in (each for each in walk(tree) if isinstance(each, ast.stmt) and not has_blocks(each)):
            if not may_be_the_same(drawn_in(case.sources, [node]), chosen):
                continue
            around = [g for g in guards(tree, node.lineno) if decides(g) or is_while(g)]
            if not around or any(map(is_alike, around)) or case.table.ran(rank, file, node.lineno) is not None:
                continue
            found[Condition(around[-1].condition, file, around[-1].line)] = None
    return list(found) if len(found) <= MOST else []


def chooses_by(case: Case, rank: int) -> set[str]:
    """The generators that choose the peer of the message in which the rank is."""
    found: set[str] = set()
    for frame in user_stack(case.activities[rank].stack)[:1]:
        at = place_of(case.sources, frame.file, frame.line)
        calls = message_calls(enclosing_function(at.tree, frame.line)) if at is not None else ()
        for _, _, given in calls:
            found |= drawn_for(case.sources, at, given) if at is not None and given is not None else set()
    return found


def _drawn_at(case: Case, file: str, line: int) -> set[str]:
    """The generators that the statement at the line draws from."""
    tree = case.sources.function(file, line)
    statements = (node for node in walk(tree) if isinstance(node, ast.stmt)) if tree is not None else ()
    return drawn_in(case.sources, [each for each in statements if holds(each, line) and not has_blocks(each)])
