"""What is said of a message that one rank awaits and the other one has not issued: under what either does so.

Example: rank 2 awaits a header under `if self.shape is None:`, and rank 1 sends it under `if shape != self.announced:`.
"""

from __future__ import annotations

from hangdoc.diagnosis.bounds import NAMED
from hangdoc.diagnosis.causes.phrases import place
from hangdoc.diagnosis.condition.matching_message import Matching
from hangdoc.diagnosis.condition.ways_past import ways_past
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.handlers import swallowing
from hangdoc.model.diagnosis import Activity
from hangdoc.model.message import Condition, Joined, Message
from hangdoc.model.process import Frame


def left_out(case: Case, waiter: Activity, peer: int, partner: Matching) -> list[Message]:
    """Clauses on the conditions under which the peer issues what the waiter awaits, and on those by which the waiter
    awaits it; none on the rank."""
    given = by_evidence(case, ways_past(case, partner.stack)[0], peer)
    line = place(user_stack(partner.stack)[0])
    clauses: list[Message] = []
    if given:  # that it was issued there before is not said: its tag may have been another one
        issued: Message = [f"what rank {waiter.rank} awaits is issued at ", line, ", which depends on "]
        clauses.append([issued, Joined(given, " and ")])
    return [*clauses, *awaited_under(case, waiter)]


def by_evidence(case: Case, conditions: list[Condition], rank: int) -> list[Condition]:
    """The conditions, first those under which the rank alone has been by what it ran, left behind or wrote; more than
    two of them only where that is known of none.

    Example: `if len(batch) == n:` and `if self.failures > 2:`, under which rank 2 alone has logged something → the
    latter first.
    """
    conditions = still_possible(case, conditions, rank) or conditions
    first = conditions
    kept = [*first, *(each for each in conditions if each not in first)]
    return kept[: max(NAMED, len(first))] if first else kept


def still_possible(case: Case, conditions: list[Condition], rank: int) -> list[Condition]:
    """The conditions without those by which the rank would have left a loop that it is in, and with the handlers that
    go on in place of their `try:`.

    Example: rank 2 is in the broadcast of `while True: ⏎ broadcast(command) ⏎ if command == "stop": ⏎ return ⏎ try: ⏎
    send(run(command)) ⏎ except KeyError: ⏎ log()` → `except KeyError:` alone.
    """
    found: dict[Condition, None] = {}
    for each in conditions:
        if each.source == "try:":
            tried = [s for s in swallowing(case.sources, Frame(each.file, each.line + 1, "")) if s.first == each.line]
            found |= dict.fromkeys([Condition(s.condition, each.file, s.line) for s in tried] or [each])
        else:
            found[each] = None
    return list(found)


def awaited_under(case: Case, waiter: Activity) -> list[Message]:
    """A clause on the conditions under which the rank waits for its message, and what it shows of them."""
    told = ways_past(case, waiter.stack)[0]
    return [[f"rank {waiter.rank} awaits it under ", Joined(told, " and ")]] if told else []
