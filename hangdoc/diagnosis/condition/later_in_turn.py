"""Whom a rank is still to come to in the loop over its peers that it is in.

Example: rank 0 waits for rank 4 in `for peer in peers: ⏎ swap(peer)`, and its peers are 4 and 1 → it comes to rank 1
later, so that it has left no message to rank 1 out.
"""

from __future__ import annotations

import ast
import re

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, holds, names_in, walk
from hangdoc.model.diagnosis import Activity
from hangdoc.model.process import Frame

_WHOLE = re.compile(r"[\[(]\d+(, \d+)*,?[\])]")
"""A list or tuple of ranks, of which nothing was cut off."""


def may_come_later(case: Case, activity: Activity, other: int) -> bool:
    """True if the rank is in a loop over its peers, of which it may not have come to the other one yet.

    Example: rank 0 waits in `dist.send(x, dst=owner)` of `for owner in range(world):` for rank 2, and rank 3 waits for
    it → True; also where the item is what names the peer, as `task` in `dist.send(x, dst=task.worker)`.
    """
    peer = str(activity.peer)
    for frame in user_stack(activity.stack):
        tree = case.sources.function(frame.file, frame.line)
        values = {local.name: local.value for local in frame.locals}
        for node in walk(tree) if tree is not None else ():
            if not isinstance(node, ast.For) or not isinstance(node.target, ast.Name) or not holds(node, frame.line):
                continue
            item = node.target.id
            if item not in _given(tree, frame.line):
                continue  # it only counts the rounds
            if any(value == peer and name.partition(".")[0] == item for name, value in values.items()):
                later = _still_to_come(case.sources, frame, peer)
                return later is None or other in later
    return False


def _given(tree: ast.AST | None, line: int) -> set[str]:
    """The names, without what belongs to them, that the calls at the line are given."""
    calls = [n for n in walk(tree) if isinstance(n, ast.Call) and holds(n, line)] if tree is not None else []
    given = [value for call in calls for value in (*call.args, *(keyword.value for keyword in call.keywords))]
    return {name.partition(".")[0] for value in given for name in names_in(value)}


def _still_to_come(sources: Sources, frame: Frame, peer: str) -> list[int] | None:
    """The ranks after this one of the loop over them that the line is in; None where not all of them are shown."""
    tree = sources.function(frame.file, frame.line)
    values = {local.name: local.value for local in frame.locals}
    for node in walk(tree) if tree is not None else ():
        if not isinstance(node, ast.For) or not isinstance(node.target, ast.Name) or not holds(node, frame.line):
            continue
        items = values.get(dotted(node.iter), "")
        if values.get(node.target.id) != peer or not _WHOLE.fullmatch(items):
            continue
        ranks = re.findall(r"\d+", items)
        if len(set(ranks)) == len(ranks) and peer in ranks:
            return [int(rank) for rank in ranks[ranks.index(peer) + 1 :]]
    return None
