"""HD101 of actors (Ray): a rank is idle, and the others are in a step that nobody has called on it."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import cited, line_of, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.loops.held import items_of_value
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, OutsideWait
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import is_in, user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import holds, last_name, text_of, walk
from hangdoc.model.kinds import COMMUNICATING
from hangdoc.model.message import Condition, Does, Joined, Message, joined, sentence
from hangdoc.model.process import Frame, Stack


@cause("HD101", explains=OutsideWait, order=365)
def nobody_called_it(case: Case, blame: Blame[OutsideWait]) -> Finding | None:
    """HD101: the driver called a step on some actors only.

    Example: `[l.update.remote(b) for l, b in pairs if len(b) > 3]`, actors 0 and 2 wait in update()'s all_reduce, actor
    1 for its next call, and the driver for the answers.
    """
    others = tuple(rank for rank in others_of(case, blame) if case.activities[rank].kind in COMMUNICATING)
    steps = {plain(way[-1].function) for rank in others if (way := user_stack(case.activities[rank].stack))}
    if not others or len(steps) != 1 or not all(is_idle_actor(case.activities[rank].stack) for rank in blame.culprits):
        return None
    (step,) = steps
    called = _called(case, step)
    deciding = called[1] if called is not None else []
    where: Message = [f"the driver calls {step}() at ", line_of(called[0]) if called is not None else ""]
    return Finding(
        "HD101",
        sentence(
            [Does(blame.culprits, "is", "are"), f" idle: no call of {step}(), which the others are in, has reached it"],
            where_they_wait(case, others),
        ),
        joined(
            where if called is not None else "",
            [Joined(deciding, " and "), " decides on which actors"] if deciding else "",
            "an actor is idle as well while an argument of its call is still being computed",
        ),
        f"call {step}() on every actor of the group, or leave its collectives to a group of those that are called",
        decided_at=deciding[-1] if deciding else None,
    )


def is_idle_actor(stack: Stack) -> bool:
    """True for an actor's process that runs no task."""
    return bool(stack) and is_in(stack[0], "actor_file", "actor_loop")


def _called(case: Case, step: str) -> tuple[Frame, list[Condition]] | None:
    """(the only line that calls the step on an actor, the conditions around that); None where there are several."""
    calls = [
        each
        for each in case.sources.user_calls("remote")
        if isinstance(each.call.func, ast.Attribute) and last_name(each.call.func.value) == step
    ]
    if len(calls) != 1:
        return None
    at = calls[0].at
    tree = case.sources.function(at.file, at.line)
    around = guards(tree, at.line, frozenset({"remote"})) if tree is not None else []
    deciding = [cited(guard, at.file) for guard in around if guard.kind in CONDITIONS and "__name__" not in guard.names]
    return at, deciding or chosen_at(at, calls[0].function) or left_out_at(case.sources, at, calls[0].function)


def chosen_at(at: Frame, function: ast.AST) -> list[Condition]:
    """Where the function sets what the loop around the line goes over, if it does so once.

    Example: `chosen = late(workers) ⏎ ray.get([w.sync.remote() for w in chosen])` → the first line.
    """
    named = {each.id for each in _gone_over(function, at.line) if isinstance(each, ast.Name)}
    sets = [
        n
        for n in walk(function)
        if isinstance(n, ast.Assign) and any(isinstance(to, ast.Name) and to.id in named for to in n.targets)
    ]
    return [Condition(text_of(each), at.file, each.lineno) for each in sets] if len(sets) == 1 else []


def left_out_at(sources: Sources, at: Frame, function: ast.AST) -> list[Condition]:
    """What decides which items the loop around the line goes over, where it names none that the function sets.

    Example: `[w.round.remote() for w in self.trusted()]`, and trusted() returns `[w for w in self.workers if w.kl < 5]`
    → that `if`.
    """
    for each in _gone_over(function, at.line):
        found = items_of_value(sources, at.file, function, each)
        if found:
            return found
    return []


def _gone_over(function: ast.AST, line: int) -> list[ast.expr]:
    """What the loops around the line go over."""
    loops = [n for n in walk(function) if isinstance(n, ast.For | ast.ListComp | ast.GeneratorExp) and holds(n, line)]
    return [part.iter for n in loops for part in ([n] if isinstance(n, ast.For) else n.generators)]
