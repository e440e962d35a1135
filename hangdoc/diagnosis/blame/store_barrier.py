"""A barrier that a program makes of the store: each rank counts itself, the last one sets the key that all wait for.

Example: in `if store.add(f"{name}/count", 1) == world: ⏎ store.set(f"{name}/open", "1")` and then
`store.wait([f"{name}/open"])` ranks 0 and 2 wait, rank 1 waits in an all_reduce → rank 1 has not counted itself.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.queries import store_sets
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function, function_name, last_name, walk
from hangdoc.diagnosis.state.activity import waits_for_a_key
from hangdoc.diagnosis.state.store_keys import is_past_setting
from hangdoc.model.kinds import Confidence
from hangdoc.model.process import Frame
from hangdoc.model.wording import ranks_text


@dataclass(frozen=True, slots=True)
class NotCounted(Explanation):
    """The culprits have not counted themselves where the others wait for the last one to come."""

    waiting: tuple[int, ...]
    counted_at: Frame


def not_counted(case: Case) -> Blame[NotCounted] | None:
    """The blame of the ranks that are not in such a barrier, in which most others wait; None where there is none.

    Half of the ranks or fewer may as well have come to one barrier too many: then it is either side.
    """
    inside: dict[Frame, list[int]] = {}
    for rank, activity in sorted(case.activities.items()):
        frame = next(iter(user_stack(activity.stack)), None)
        at = _counted_at(case.sources, frame) if frame is not None and waits_for_a_key(activity) else None
        if at is not None:
            inside.setdefault(at, []).append(rank)
    if not inside or case.hidden:
        return None
    counted_at, waiting = max(inside.items(), key=lambda each: len(each[1]))
    others = tuple(sorted(set(case.activities) - set(waiting)))
    past = all(is_past_setting(case.activities[r], case.sources) for r in others)
    if not others or not past:
        return None
    found = NotCounted(tuple(waiting), counted_at)
    if len(others) < len(waiting):
        sure = f"{ranks_text(found.waiting)} have counted themselves there, {ranks_text(others)} alone not"
        return Blame(found, others, proved=True, confidence=Confidence.LIKELY, sure=sure)
    sure = "either it was left out, or the others came there once too often"
    return Blame(found, others, (found.waiting,), proved=True, sure=sure)


def _counted_at(sources: Sources, frame: Frame) -> Frame | None:
    """The line above the frame's, in its function, that counts the rank, and under which the last one sets a key."""
    tree = sources.function(frame.file, frame.line)
    function = enclosing_function(tree, frame.line) if tree is not None else None
    counts = {
        target.id
        for node in (walk(function) if function is not None else ())
        if isinstance(node, ast.Assign) and _counts(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in walk(function) if function is not None else ():
        if not isinstance(node, ast.If) or not isinstance(node.test, ast.Compare) or node.lineno >= frame.line:
            continue
        sides = [node.test.left, *node.test.comparators]
        by_count = any(_counts(side) or (isinstance(side, ast.Name) and side.id in counts) for side in sides)
        if by_count and any(store_sets(statement) for statement in node.body):
            return Frame(frame.file, node.lineno, function_name(function, node.lineno) if function else "")
    return None


def _counts(value: ast.expr) -> bool:
    """True for `store.add(key, 1)`; add(key, 0) reads."""
    if not isinstance(value, ast.Call) or last_name(value.func) not in names("store_counter") or len(value.args) < 2:
        return False
    return not (isinstance(value.args[1], ast.Constant) and value.args[1].value == 0)
