"""A message on gloo that its rank only polls: gloo finishes a message in `wait()`, and `is_completed()` never says so.

Example: `work = dist.irecv(x, src=0) ⏎ while not work.is_completed(): ⏎ time.sleep(0.02)`. The tensor is filled, and
the loop goes on for ever (torch 2.13: ProcessGroupGloo's SendWork and RecvWork leave isCompleted() to their wait()).
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.loops import ways_out
from hangdoc.diagnosis.source.message_calls import peer_of
from hangdoc.diagnosis.source.polls import object_of
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import innermost_loop, last_name, text_of, walk
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import MESSAGES, ActivityKind, Confidence
from hangdoc.model.message import Condition

_POLLING = frozenset({*MESSAGES, ActivityKind.SLEEPING, ActivityKind.COMPUTING})


@dataclass(frozen=True, slots=True)
class OnlyPolled(Explanation):
    """The loop in which the culprits ask for a message that they never wait for."""

    loop: Condition


def only_polled(case: Case) -> Blame[OnlyPolled] | None:
    """The ranks in such a loop, where a message is what others wait for as well; None among devices, whose messages
    complete by themselves."""
    backends = {group.backend for each in case.ranks.values() if each.journal for group in each.journal.groups}
    if case.streams or not all("gloo" in backend for backend in backends if backend):
        return None
    polling = {rank: loop for rank, each in case.activities.items() if (loop := _loop_of(case.sources, each))}
    if not polling:
        return None
    sure = "gloo finishes a message in wait(), and nothing else in that loop ends it"
    ranks = tuple(sorted(polling))
    return Blame(OnlyPolled(polling[ranks[0]]), ranks, proved=True, confidence=Confidence.LIKELY, sure=sure)


def _loop_of(sources: Sources, activity: Activity) -> Condition | None:
    """The `while` around the rank's line, or around the call that led to it, that asks whether a message is complete,
    and has no other way out."""
    for frame in user_stack(activity.stack) if activity.kind in _POLLING else ():
        tree = sources.function(frame.file, frame.line)
        loop = innermost_loop(tree, frame.line)
        if tree is None or not isinstance(loop, ast.While):
            continue
        asked = [n for n in walk(loop.test) if isinstance(n, ast.Call) and last_name(n.func) in names("asks_work")]
        if asked and not ways_out(tree, loop.lineno) and all(_is_message(sources, loop.test, call) for call in asked):
            return Condition(f"while {text_of(loop.test)}:", frame.file, loop.lineno)
    return None


def _is_message(sources: Sources, test: ast.expr, asked: ast.Call) -> bool:
    """True if all that the program sets the asked name to are messages, or lists of them.

    Examples: `self.work = dist.irecv(x, src=0)`; `all(job.is_completed() for job in self.jobs)` of `self.jobs =
    [dist.irecv(box, src=peer) for …]`.
    """
    name = object_of(asked)
    over = [part for node in walk(test) for part in getattr(node, "generators", ())]
    name = next((last_name(part.iter) for part in over if last_name(part.target) == name), name)
    given = [
        node.value
        for _, tree in sources.user_trees()
        for node in walk(tree)
        if isinstance(node, ast.Assign) and any(last_name(target) == name for target in node.targets)
    ]
    return bool(given) and all(map(_issues, given))


def _issues(value: ast.expr) -> bool:
    if isinstance(value, ast.ListComp):
        return _issues(value.elt)
    if isinstance(value, ast.List):
        return bool(value.elts) and all(map(_issues, value.elts))
    return isinstance(value, ast.Call) and (
        peer_of(value) is not None or last_name(value.func) in names("issues_prepared")
    )
