"""Which partner a rank had in the round before, as the function that called for the exchange still holds it.

Example: rank 2 is in `dist.recv(theirs, peer)` of mix(), which returns `peer`, and its caller is in round 5 of

    92  if step % every == 0:
    93      peer = mixer.mix(model)

with `peer` = 3, which round 4 has set → 3.
"""

from __future__ import annotations

import ast

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.evaluate import test_at, truth
from hangdoc.diagnosis.source.guards import Guard, guards, split_at_loop
from hangdoc.diagnosis.source.message_calls import issued_peers
from hangdoc.diagnosis.source.settings import returned
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function, last_name, text_of, walk
from hangdoc.model.diagnosis import Activity
from hangdoc.model.process import Frame


def last_partner(case: Case, activity: Activity, now: int) -> int | None:
    """The partner of the rank in the round before ``now``; None where that is not seen, or there was none."""
    stack = user_stack(activity.stack)
    if len(stack) < 2 or not _returns_peer(case.sources, stack[0]):
        return None
    caller = stack[1]
    tree = case.sources.function(caller.file, caller.line)
    if tree is None or not _was_run(tree, caller, now):
        return None
    name = _assigned(tree, caller.line, plain(stack[0].function).rpartition(".")[2])
    value = next((each.value for each in caller.locals if each.name == name), "")
    return int(value) if value.isdecimal() else None


def _returns_peer(sources: Sources, frame: Frame) -> bool:
    """True if the function that the frame is in returns the peer of its messages."""
    tree = sources.function(frame.file, frame.line)
    function = enclosing_function(tree, frame.line) if tree is not None else ast.Module([], [])
    peers = {peer for _, peer in issued_peers(function)}
    answers = {text_of(each.value) for each in returned(frame.file, function)}
    return len(peers) == 1 and answers == peers


def _assigned(tree: ast.AST, line: int, called: str) -> str:
    """The name that the line sets to what the function answers; '' where there is none."""
    for node in walk(tree):
        if isinstance(node, ast.Assign) and node.lineno == line and isinstance(node.value, ast.Call):
            target = node.targets[0]
            if last_name(node.value.func) == called and isinstance(target, ast.Name):
                return target.id
    return ""


def _was_run(tree: ast.AST, frame: Frame, now: int) -> bool:
    """True if the line, in round ``now`` of its loop, was run in the one before, by the conditions around it."""
    inside = split_at_loop(guards(tree, frame.line))[1]
    if not inside or len(inside[0].rounds) != 1:
        return False
    (counter,) = inside[0].rounds
    values = {each.name: each.value for each in frame.locals}
    if now < 1 or values.get(counter) != str(now):
        return False
    before = {**values, counter: str(now - 1)}
    return all(_holds(tree, guard, before) for guard in inside[1:])


def _holds(tree: ast.AST, guard: Guard, values: dict[str, str]) -> bool:
    test = test_at(tree, guard.line)
    return test is not None and truth(test, values) is guard.taken
