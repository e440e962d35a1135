"""By which conditions a rank can have gone past a line that issues messages, as the source around it says."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.condition.branch_point import is_of_rank_alone
from hangdoc.diagnosis.condition.stack_comparison import waits_only
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.names import is_rank_name, pattern
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS, Guard, guards, jumps_further_in, loops_around
from hangdoc.diagnosis.source.loops import ways_out
from hangdoc.diagnosis.source.queries import sets_attribute
from hangdoc.diagnosis.source.syntax import dotted, enclosing_function, walk
from hangdoc.model.asked import answers_to
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame, Stack


def ways_past(case: Case, stack: Stack) -> tuple[list[Condition], list[Condition]]:
    """The conditions between the loop and the line that issues the messages, and the loop's ways out: by one of these
    the rank got past the message. The two nearest to it, and the first two."""
    on_the_way: list[Condition] = []
    alike: set[Condition] = set()
    for frame in user_stack(stack):
        tree = case.sources.function(frame.file, frame.line)
        found = guards(tree, frame.line) if tree is not None else []
        loops = [g for g in found if g.kind == "loop"]
        inner = found[found.index(loops[-1]) + 1 :] if loops else found
        inner += jumps_further_in(tree, frame.line, loops[-1].span if loops else None) if tree is not None else []
        mine = [_cited(g, frame.file) for g in inner if _may_differ(g) and not is_settled(case, g, frame.file)]
        alike |= {_cited(g, frame.file) for g in inner if _goes_alike(case, g, loops, frame.file)}
        on_the_way = [each for each in mine if each not in on_the_way] + on_the_way
        if loops:
            out = ways_out(tree, loops[-1].line) if tree is not None else []
            left = [each for line, text in out if (each := Condition(text, frame.file, line)) not in on_the_way]
            # What goes alike in each round decides nothing, where anything else is on the way.
            return ([each for each in on_the_way if each not in alike] or on_the_way)[-2:], left[:2]
    return [], []


def around_line(case: Case, frame: Frame) -> list[Condition]:
    """The two nearest conditions around the line, in its own function, by which a rank can go past it."""
    tree = case.sources.function(frame.file, frame.line)
    found = [g for g in guards(tree, frame.line) if _may_differ(g)] if tree is not None else []
    return [_cited(g, frame.file) for g in found if not is_settled(case, g, frame.file)][-2:]


def loop_left(case: Case, stack: Stack, rank: int) -> Condition | None:
    """The innermost loop around the line that issues the messages, which the rank has left: it may have had fewer
    rounds than its peer awaits. None where the rank is still in it.

    Example: `for group in self.kept(version): ⏎ dist.send(group, 1)`, and the rank is in the broadcast after it.
    """
    around = _innermost_loop(case, stack)
    if around is None:
        return None
    file, loop = around
    within = any(f.file == file and loop.holds(f.line) for f in case.activities[rank].stack)
    return None if within else _cited(loop, file)


def _innermost_loop(case: Case, stack: Stack) -> tuple[str, Guard] | None:
    for frame in user_stack(stack):
        loops = loops_around(case.sources.function(frame.file, frame.line), frame.line)
        loops = [loop for loop in loops if not waits_only(case.sources, frame, loop)]
        if loops:
            return frame.file, loops[-1]
    return None


def _may_differ(guard: Guard) -> bool:
    """True if the guard can go another way in another round; a test of the rank itself always goes the same way.

    Not one that tests more: `if rank == 1 and step == 5:` does not.
    """
    return guard.kind in (*CONDITIONS, "try") and not is_of_rank_alone(guard)


def is_settled(case: Case, guard: Guard, file: str) -> bool:
    """True if the guard only tests attributes that an object got when it was made: it goes the same way each time, and
    the rank has passed the message by it before. Examples: `if not self.last:`, `if self.stage.last:`, `if st.last:`
    with `st = self.stage`.
    """
    if "(" in guard.condition or not guard.names:
        return False
    if all(name.startswith("self.") for name in guard.names):
        return stay_as_made(case, {part for name in guard.names for part in name.split(".")[1:]}, file)
    owners = {owner for name in guard.names for owner, dot, last in [name.partition(".")] if dot and "." not in last}
    if len([name for name in guard.names if name.count(".") == 1]) != len(guard.names):
        return False
    if not all(owner == "self" or _stands_for_own(case, owner, guard, file) for owner in owners):
        return False
    return stay_as_made(case, {name.rpartition(".")[2] for name in guard.names}, file)


def _stands_for_own(case: Case, name: str, guard: Guard, file: str) -> bool:
    """True if the local name is set once around the guard, to an attribute of `self` that stays as it was made."""
    tree = case.sources.function(file, guard.line)
    here = enclosing_function(tree, guard.line) if tree is not None else None
    given = [
        node.value
        for node in (walk(here) if here is not None else ())
        if isinstance(node, ast.Assign) and any(dotted(target) == name for target in node.targets)
    ]
    own = dotted(given[0]) if len(given) == 1 else ""
    return own.startswith("self.") and own.count(".") == 1 and stay_as_made(case, {own.rpartition(".")[2]}, file)


def stay_as_made(case: Case, attributes: set[str], file: str) -> bool:
    """True if no function but `__init__` sets one of the attributes; of a property, those that it answers by."""
    trees = [tree for _, tree in case.sources.trees(file)]
    asked = [f for name in attributes for _, f in case.sources.functions(name) if answers_to(f, called=False)]
    parts = [part for function in asked for statement in function.body for part in walk(statement)]
    by = {part.attr for part in parts if isinstance(part, ast.Attribute)}
    return not (
        any(isinstance(part, ast.Call) for part in parts)
        or any(sets_attribute(tree, name) for tree in trees for name in attributes | by)
        or any(answers_to(function, called=False) for name in by for _, function in case.sources.functions(name))
    )


def _goes_alike(case: Case, guard: Guard, loops: list[Guard], file: str) -> bool:
    """True if the guard tests the number of the round, or attributes of any object that are set when it is made.

    Examples: `if m >= warmup:` and `if m + 1 < self.world:` in `for m in range(n):`, `if not self.stage.first:`.
    """
    if "(" in guard.condition or not guard.names:
        return False
    if any(name in loop.rounds for loop in loops for name in guard.names):
        return all("." not in name or is_rank_name(name) or _is_of_the_job(case, name, file) for name in guard.names)
    last = {name.rpartition(".")[2] for name in guard.names}
    return all(name.startswith("self.") for name in guard.names) and stay_as_made(case, last, file)


def _is_of_the_job(case: Case, name: str, file: str) -> bool:
    """True for a setting, the number of ranks, and for what an object got when it was made: `self.world`."""
    if pattern("job_setting").search(name) or pattern("count_of_ranks").search(name):
        return True
    return name.count(".") == 1 and stay_as_made(case, {name.rpartition(".")[2]}, file)


def _cited(guard: Guard, file: str) -> Condition:
    return Condition(guard.condition, file, guard.line)
