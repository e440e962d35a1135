"""Actors (Ray) that wait for the answer of a method of actors that are busy: each runs one method at a time.

Example: both actors of a class are in `ray.get(self.opponent.act.remote(x))` in match(); act() is a method of the same
class, and neither can run it before its match() returns.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from hangdoc.diagnosis.frames.stacks import is_in, user_stack
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, enclosing_function, holds, walk
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import WaitReason
from hangdoc.model.process import Frame

_REMOTE = "remote"
_SEVERAL = ("max_concurrency", "concurrency_groups")
"""By which an actor runs several methods at a time (Ray 2.60)."""


def busy_actors(activities: Mapping[int, Activity], sources: Sources) -> dict[int, tuple[int, ...]]:
    """Rank that waits for a method of another actor → the ranks of that class, all of which are in a method; without
    ranks for which that cannot be told.

    Which of them it asks is not known: it may go on as soon as one may that does not wait so, and then waits for these.
    Example: 0 and 2 wait for players, of which 1 works → {0: (1,), 2: (1,)}; if 1 waits so as well → {0: (1, 2), …}.
    """
    asking = {rank: a for rank, a in activities.items() if a.reason == WaitReason.TASK and a.where is not None}
    if not asking or any(a.stack and is_in(a.stack[0], "actor_file", "actor_loop") for a in activities.values()):
        return {}
    asked: dict[int, str] = {}
    owners: dict[str, set[str]] = {}
    for rank, activity in asking.items():
        methods = awaited_methods(activity.where, sources)
        owners |= {name: _owners(name, sources) for name in methods if name not in owners}
        classes = {owner for name in methods for owner in owners[name]}
        asked |= {rank: classes.pop()} if len(classes) == 1 else {}
    ranks_of: dict[str, list[int]] = {}
    for rank, activity in sorted(activities.items()):
        ranks_of.setdefault(_class_of(activity), []).append(rank)
    found = _that_may_go_on(asked, ranks_of)
    stuck = ((rank, tuple(r for r in ranks_of.get(asked[rank], ()) if r != rank)) for rank in asked.keys() - found)
    return found | {rank: others for rank, others in stuck if others}


def _that_may_go_on(asked: Mapping[int, str], ranks_of: Mapping[str, list[int]]) -> dict[int, tuple[int, ...]]:
    """Rank that may get its answer → the ranks of the class it asks that wait for no actor, or that may go on before it
    does."""
    found: dict[int, tuple[int, ...]] = {}
    while True:
        free = {
            owner: tuple(r for r in ranks if r not in asked or r in found) for owner, ranks in ranks_of.items() if owner
        }
        more = {r: free[owner] for r, owner in asked.items() if r not in found and free.get(owner)}
        if not more:
            return found
        found |= more


def awaited_methods(where: Frame | None, sources: Sources) -> list[str]:
    """The methods whose results the line waits for: 'act' of `ray.get(peer.act.remote(x))`, also where an earlier line
    of the function has called it."""
    tree = sources.function(where.file, where.line) if where is not None else None
    if tree is None or where is None:
        return []
    here = [node for node in walk(tree) if isinstance(node, ast.Call) and holds(node, where.line)]
    direct = [name for call in here for name in _remote(call)]
    if direct:
        return direct
    given = {dotted(arg) for call in here for arg in call.args} - {""}
    made = (n for n in walk(enclosing_function(tree, where.line)) if isinstance(n, ast.Assign))
    return [
        name
        for node in made
        if given & set(map(dotted, node.targets))
        for call in walk(node.value)
        for name in _remote(call)
    ]


def _remote(node: ast.AST) -> Iterator[str]:
    """'act' of `peer.act.remote(x)`; nothing of `Actor.remote()`, which makes one."""
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Attribute) and function.attr == _REMOTE and isinstance(function.value, ast.Attribute):
        yield function.value.attr


def _owners(method: str, sources: Sources) -> set[str]:
    """The classes of the program that have the method and run one at a time; none where that is not known."""
    trees = [tree for _, tree in sources.user_trees()]
    several = (node.arg in _SEVERAL for tree in trees for node in walk(tree) if isinstance(node, ast.keyword))
    if any(several):
        return set()
    found: set[str] = set()
    for node in (n for tree in trees for n in walk(tree) if isinstance(n, ast.ClassDef)):
        if any(isinstance(each, ast.FunctionDef) and each.name == method for each in node.body):
            found.add(node.name)
        if any(isinstance(each, ast.AsyncFunctionDef) for each in node.body):
            found.discard(node.name)
    return found


def _class_of(activity: Activity) -> str:
    """The class whose method the actor runs: 'Player' of Player.match."""
    own = user_stack(activity.stack)
    return own[-1].function.rpartition(".")[0].rpartition(".")[2] if own else ""
