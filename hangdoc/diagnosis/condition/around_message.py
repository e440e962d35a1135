"""What the source says of the messages around the one that a rank waits for, where no history shows them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hangdoc.diagnosis.frames.names import is_rank_name, names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.loops import ways_out
from hangdoc.diagnosis.source.message_calls import passes_message
from hangdoc.diagnosis.source.queries import calls_in
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import LOOPS, enclosing_function, has_blocks, holds, last_name, walk
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame, Stack


def sent_before(sources: Sources, stack: Stack, sends: str = "sends_message") -> Frame | None:
    """The line by which every round sends a message before it comes to the recv at the stack's top; None where there
    is none, or where a condition decides about it. ``sends``: which names are calls that send.

    Example: `self.push(x) ⏎ dist.recv(y, src=last)`, and push() sends → the line of push.
    """
    for frame in user_stack(stack):
        tree = sources.function(frame.file, frame.line)
        function = enclosing_function(tree, frame.line) if tree is not None else None
        if function is None:
            continue
        around = [n for n in walk(function) if isinstance(n, LOOPS) and holds(n, frame.line)]
        # A loop that only receives is part of a round: `for worker in workers: ⏎ results.append(take(worker))`.
        rounds = [n for n in around if any(passes_message(sources, call, names(sends)) for call in calls_in(n.body))]
        within = max(rounds, key=lambda loop: loop.lineno, default=function)
        for statement in _before(within, frame.line):
            if not has_blocks(statement) and any(
                passes_message(sources, call, names(sends)) for call in calls_in([statement])
            ):
                return Frame(frame.file, statement.lineno, frame.function)
        if rounds:
            return None  # a round begins here
    return None


def leave_out_the_next(sources: Sources, stack: Stack, sends: str = "sends_message") -> list[Condition]:
    """The conditions by which a round ends after the recv at the stack's top, and before it sends on. Not those on the
    rank, which go one way on each. ``sends``: which names are calls that send.

    Example: `x = self.pull() ⏎ if self.sure(x): ⏎ return ⏎ self.push(x)` → the `if`.
    """
    found: dict[Condition, None] = {}
    for frame in user_stack(stack):
        tree = sources.function(frame.file, frame.line)
        function = enclosing_function(tree, frame.line) if tree is not None else None
        if function is None:
            continue
        looping = any(isinstance(node, LOOPS) and holds(node, frame.line) for node in walk(function))
        for call in calls_in([n for n in getattr(function, "body", []) if isinstance(n, ast.stmt)]):
            if call.lineno > frame.line and passes_message(sources, call, names(sends)):
                for guard in guards(function, call.lineno):
                    # Who has left the loop would not be here.
                    early = guard.kind == "return" and guard.line > frame.line and (guard.goes_on or not looping)
                    if early and not any(map(is_rank_name, guard.names)):
                        found[Condition(guard.condition, frame.file, guard.line)] = None
        if looping:
            break
    return list(found)


def ends_its_sends(sources: Sources, line: Frame) -> list[Condition]:
    """The conditions by which a loop that sends, in what the line calls, ends early: the round then has fewer messages.
    None on the rank.

    Example: `self.propose(x)`, and `for i in range(k): ⏎ dist.send(…) ⏎ if token == eos: ⏎ break` in it → the `if`.
    """
    tree = sources.function(line.file, line.line)
    calls = [n for n in walk(tree) if isinstance(n, ast.Call) and n.lineno == line.line] if tree is not None else []
    found: dict[Condition, None] = {}
    for file, function in (each for call in calls for each in sources.user_definitions(last_name(call.func))):
        sends = [each for each in calls_in(function.body) if last_name(each.func) in names("sends_message")]
        loops = [n for n in walk(function) if isinstance(n, LOOPS) and any(holds(n, s.lineno) for s in sends)]
        for loop in loops:
            out = (Condition(text, file, at) for at, text in ways_out(function, loop.lineno))
            found |= dict.fromkeys(each for each in out if not is_rank_name(each.source))
    return list(found)


def _before(within: ast.AST, line: int) -> Iterator[ast.stmt]:
    """The statements of the function, or of a round of the loop, that always run before the line."""
    for node in walk(within):
        for _, block in ast.iter_fields(node):
            statements = [s for s in block if isinstance(s, ast.stmt)] if isinstance(block, list) else []
            if any(holds(statement, line) for statement in statements):
                yield from (s for s in statements if (s.end_lineno or s.lineno) < line)
