"""Which `if` decides whether an exchange begins with a send or with a recv."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import site_of, user_stack
from hangdoc.diagnosis.source.message_calls import passes_message
from hangdoc.diagnosis.source.queries import calls_in
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function, holds, last_name, text_of, walk
from hangdoc.model.diagnosis import Activity
from hangdoc.model.message import Condition
from hangdoc.model.process import Stack


def first_message_under(sources: Sources, stack: Stack) -> Condition | None:
    """The innermost `if` by which a round begins with the message at the stack's top, and by whose other way it begins
    with one in the opposite direction: of two partners, one has to go each way. None where there is none.

    Example: `if mine >= theirs: ⏎ dist.send(x, peer) ⏎ dist.recv(y, peer) ⏎ else: ⏎ dist.recv(y, peer) ⏎ …`, of line 2.
    """
    for frame in user_stack(stack):
        tree = sources.function(frame.file, frame.line)
        function = enclosing_function(tree, frame.line) if tree is not None else None
        tests = [n for n in walk(function) if isinstance(n, ast.If)] if function is not None else []
        for test in sorted(tests, key=lambda node: -node.lineno):
            own, other = _ways_of(function, test, frame.line)
            way, first = _first_message(sources, own)
            opposite, _ = _first_message(sources, other)
            if first == frame.line and {way, opposite} == {"send", "recv"} and not _asks_a_switch(test.test):
                return Condition(f"if {text_of(test.test)}:", frame.file, test.lineno)
    return None


def same_way_of_all(sources: Sources, ring: Sequence[Activity]) -> Condition | None:
    """That `if`, where all ranks of a circle wait in one call that they came to by the same lines; else None."""
    alike = len({(each.kind, site_of(each.stack)) for each in ring}) == 1
    return first_message_under(sources, ring[0].stack) if alike else None


def _asks_a_switch(test: ast.expr) -> bool:
    """True if the test asks a constant of the program whether it is set, which is alike on all ranks.

    Example: `if rank == 0 and STAGGERED:`.
    """
    asked = test.values if isinstance(test, ast.BoolOp) else [test]
    asked = [each.operand if isinstance(each, ast.UnaryOp) else each for each in asked]
    return any(last_name(each).isupper() for each in asked)


def _ways_of(function: ast.AST | None, test: ast.If, line: int) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """(the way of the `if` that the line is on, the other one); of `if c: ⏎ …; return` the other is what follows."""
    body, orelse = test.body, test.orelse
    if not orelse and isinstance(body[-1], ast.Return | ast.Continue):
        blocks = (block for node in walk(function or test) for _, block in ast.iter_fields(node))
        around = next((b for b in blocks if isinstance(b, list) and any(each is test for each in b)), [])
        orelse = [each for each in around if each.lineno > (test.end_lineno or test.lineno)]
    if any(holds(statement, line) for statement in body):
        return body, orelse
    return (orelse, body) if any(holds(statement, line) for statement in orelse) else ([], [])


def _first_message(sources: Sources, statements: list[ast.stmt]) -> tuple[str, int]:
    """('send' or 'recv', line) of the first message that these statements pass; ('', 0) where they pass none."""
    for call in sorted(calls_in(statements), key=lambda each: (each.lineno, each.col_offset)):
        sends, receives = (passes_message(sources, call, names(f"{verb}s_message")) for verb in ("send", "receive"))
        if sends or receives:
            # What passes both says nothing of their order.
            return ("" if sends and receives else "send" if sends else "recv"), call.lineno
    return "", 0
