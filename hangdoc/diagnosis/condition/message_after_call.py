"""A message that its rank passes only behind the call that it waits in, while its partner comes to that call only
behind the message.

Example: all stages run the loop below, rank 0 is in the barrier of process(), and rank 1 in the recv of take():

    40  while True:
    41      requests = self.take()        # recv from the stage before; rank 0 has none
    42      self.process(requests)        # here and there a barrier
    43      self.pass_on(requests)        # send to the next stage
"""

from __future__ import annotations

import ast

from hangdoc.diagnosis.condition.stack_comparison import within_one_function
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import fork, user_stack
from hangdoc.diagnosis.source.message_calls import passes_message
from hangdoc.diagnosis.source.queries import calls_in
from hangdoc.diagnosis.source.syntax import enclosing_function, holds, innermost_loop
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.operations import message_way
from hangdoc.model.process import Frame


def message_after_call(case: Case, waiter: Activity, peer: int) -> Frame | None:
    """The line, further down in the round that both ranks are in, by which the peer passes what the waiter awaits; None
    where there is none, where the peer can have passed it before its call, or where it has from another line."""
    way = within_one_function(case.sources, fork(waiter.stack, case.activities[peer].stack))
    if way is None or way[0].line >= way[1].line or waiter.rank not in case.graph.on(peer):
        return None
    here, now = way
    tree = case.sources.function(now.file, now.line)
    function = enclosing_function(tree, now.line) if tree is not None else None
    if function is None or not holds(function, here.line):
        return None
    loop = innermost_loop(function, here.line)
    if loop is not innermost_loop(function, now.line):
        return None
    within = loop or function
    wanted = names("sends_message" if waiter.kind == ActivityKind.RECV else "receives_message")
    body = [n for n in getattr(within, "body", []) if isinstance(n, ast.stmt)]
    lines = sorted({call.lineno for call in calls_in(body) if passes_message(case.sources, call, wanted)})
    if not lines or lines[0] <= now.line:
        return None
    found = Frame(now.file, lines[0], now.function)
    return found if _is_usual(case, waiter, peer, found, lines) else None


def _is_usual(case: Case, waiter: Activity, peer: int, found: Frame, lines: list[int]) -> bool:
    """True if the last such message with the waiter, where one is known, came from one of these lines."""
    journal = case.ranks[peer].journal
    way = "send" if waiter.kind == ActivityKind.RECV else "recv"
    for message in reversed(journal.point_to_points) if journal is not None else ():
        if journal is not None and message.peer == waiter.rank and message_way(message.op) == way:
            return any(f.file == found.file and f.line in lines for f in user_stack(journal.stack(message.stack)))
    return True
