"""The conditions at which one rank alone went another way than all others, by what they ran, among those that decide
about a message.

Example: rank 1 waits for data and rank 0 still gives the shape, under `if self.shape is None:`, where `self.shape` is
set anew by renew(), and of

    75  if self.frozen:
    76      return self
    77  super().train(mode)
    78  self.renew()

the counters say that every rank but rank 1 has run line 77 → `if self.frozen:`. Of only two ranks, neither is the odd
one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from hangdoc.diagnosis.bounds import FEWEST
from hangdoc.diagnosis.condition.elsewhere.ran_alone import decides, is_alike, ran_alone
from hangdoc.diagnosis.condition.elsewhere.set_before import set_before
from hangdoc.diagnosis.condition.ways_past import ways_past
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.syntax import enclosing_function, walk
from hangdoc.diagnosis.source.values import SideRanks
from hangdoc.model.diagnosis import Activity
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame


def parted_alone(case: Case, rank: int, about: Iterable[Condition]) -> list[Condition]:
    """Those of the conditions, each once."""
    others = tuple(sorted(case.seen - {rank}))
    if not case.table or len(case.table.known(others)) < max(FEWEST, len(others)):
        return []
    sides: SideRanks = ((rank,), others)
    went = {(each.file, each.guard.line) for each in ran_alone(case, sides)}
    went |= {(each.file, each.line) for side in (0, 1) for each in _to_calls(case, sides, side)}
    return [each for each in dict.fromkeys(about) if (each.file, each.line) in went]


def alone_on_its_way(case: Case, rank: int, siblings: tuple[int, ...]) -> list[Condition]:
    """The conditions, in the functions that the rank is in and before its lines there, under which it has been and none
    of its siblings has.

    Example: `if shard.has_head: ⏎ shard.index()` comes before `orders.receive()`, in which rank 3 waits, and rank 3
    alone has called index() → that `if`.
    """
    sides: SideRanks = ((rank,), siblings)
    ran = [Condition(e.guard.condition, e.file, e.guard.line) for e in ran_alone(case, sides) if e.side == 0]
    found = dict.fromkeys((*ran, *_to_calls(case, sides, 0)))
    return [each for each in found if any(_same_function(case, frame, each) for frame in _frames(case, rank, each))]


def _frames(case: Case, rank: int, condition: Condition) -> list[Frame]:
    """The rank's frames further down in the condition's file."""
    stack = user_stack(case.activities[rank].stack)
    return [frame for frame in stack if frame.file == condition.file and condition.line < frame.line]


def _same_function(case: Case, frame: Frame, condition: Condition) -> bool:
    tree = case.sources.function(frame.file, frame.line)
    return tree is not None and enclosing_function(tree, frame.line) is enclosing_function(tree, condition.line)


def deciding_about(case: Case, waiters: Iterable[Activity]) -> list[Condition]:
    """The conditions under which these wait for their messages, and those under which what they test was set."""
    around = [each for waiter in waiters for each in ways_past(case, waiter.stack)[0]]
    earlier = [
        test
        for each in dict.fromkeys(around)
        for answer in set_before(case.sources, each.file, each.line, by_rank=False)
        for test in answer.tests
    ]
    return list(dict.fromkeys((*around, *earlier)))


def _to_calls(case: Case, sides: SideRanks, side: int) -> Iterator[Condition]:
    """The innermost condition around the only call of each function that this side alone has called: known also where
    too few rounds were made for the lines to be counted."""
    mine, theirs = sides[side], sides[1 - side]
    for file, first in case.table.called_alone(mine, theirs):
        tree = case.sources.function(file, first)
        nodes = (node for node in walk(tree) if isinstance(node, ast.FunctionDef)) if tree is not None else ()
        name = next((node.name for node in nodes if node.lineno == first), "")
        calls = case.sources.user_calls(name) if len(case.sources.user_definitions(name)) == 1 else []
        for call in calls if len(calls) == 1 else ():
            if case.table.never_called(theirs, call.file, call.call.lineno):
                continue  # what called it was called by one side alone, too
            around = [guard for guard in guards(call.tree, call.call.lineno) if decides(guard) and not is_alike(guard)]
            yield from (Condition(guard.condition, call.file, guard.line) for guard in around[-1:])
