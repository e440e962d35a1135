"""What is said of a message that one rank awaits and the other one has not issued: under what either does so.

Example: rank 2 awaits a header under `if self.shape is None:`, and rank 1 sends it under `if shape != self.announced:`.
"""

from __future__ import annotations

from hangdoc.diagnosis.causes.phrases import place
from hangdoc.diagnosis.condition.matching_message import Matching, has_gone_past
from hangdoc.diagnosis.condition.ways_past import ways_past
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.evaluate import test_at
from hangdoc.diagnosis.source.syntax import names_in
from hangdoc.model.diagnosis import Activity
from hangdoc.model.message import Condition, Joined, Message, Values
from hangdoc.model.process import Frame


def left_out(case: Case, waiter: Activity, peer: int, partner: Matching) -> list[Message]:
    """Clauses on the conditions under which the peer issues what the waiter awaits, and on those by which the waiter
    awaits it; none on the rank."""
    given, _ = ways_past(case, partner.stack)
    line = place(user_stack(partner.stack)[0])
    clauses: list[Message] = []
    if given and has_gone_past(case, partner.stack, peer):
        past: Message = [f"rank {peer} has gone past the {partner.op} that rank {waiter.rank} awaits, at "]
        clauses.append([past, line, ", under ", Joined(given, " and ")])
    elif given:
        who = f"rank {peer}" if partner.rank == peer else "other ranks"
        issued: Message = [f"what rank {waiter.rank} awaits was issued before, by {who}, at "]
        clauses.append([issued, line, ", under ", Joined(given, " and ")])
    awaited, _ = ways_past(case, waiter.stack)
    if awaited:
        told = [[each, _values(case, each, waiter.rank)] for each in awaited]
        clauses.append([f"rank {waiter.rank} awaits it under ", Joined(told, " and ")])
    return clauses


def _values(case: Case, condition: Condition, rank: int) -> Message:
    """' (self.shape = None on rank 2)' for each name of the condition that the rank shows."""
    tree = case.sources.function(condition.file, condition.line)
    function = next((f.function for f in case.activities[rank].stack if _is_in(case, f, condition)), "")
    test = test_at(tree, condition.line)
    known = {name: case.values.of(condition.file, function, name) for name in names_in(test)} if test else {}
    shown: list[Message] = [
        [f"{name} = ", Values({rank: values[rank]}, " | ")] for name, values in known.items() if rank in values
    ]
    return [" (", Joined(shown, ", "), ")"] if shown else ""


def _is_in(case: Case, frame: Frame, condition: Condition) -> bool:
    return frame.file == condition.file and case.sources.function(frame.file, frame.line) is case.sources.function(
        condition.file, condition.line
    )
