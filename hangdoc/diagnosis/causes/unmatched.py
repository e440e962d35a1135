"""What is said of a message that one rank awaits and the other one has not issued: under what either does so.

Example: rank 2 awaits a header under `if self.shape is None:`, and rank 1 sends it under `if shape != self.announced:`.
"""

from __future__ import annotations

import ast

from hangdoc.diagnosis.bounds import NAMED
from hangdoc.diagnosis.causes.phrases import place
from hangdoc.diagnosis.condition.elsewhere.ran_alone import ran_alone
from hangdoc.diagnosis.condition.elsewhere.written import written_under
from hangdoc.diagnosis.condition.matching_message import Matching, has_gone_past
from hangdoc.diagnosis.condition.ways_past import ways_past
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.evaluate import test_at
from hangdoc.diagnosis.source.handlers import swallowing
from hangdoc.diagnosis.source.message_calls import passes_message
from hangdoc.diagnosis.source.queries import calls_in
from hangdoc.diagnosis.source.syntax import enclosing_function, holds, innermost_loop, names_in, walk
from hangdoc.model.diagnosis import Activity
from hangdoc.model.message import Condition, Joined, Message, Values
from hangdoc.model.process import Frame


def left_out(case: Case, waiter: Activity, peer: int, partner: Matching) -> list[Message]:
    """Clauses on the conditions under which the peer issues what the waiter awaits, and on those by which the waiter
    awaits it; none on the rank."""
    given = by_evidence(case, ways_past(case, partner.stack)[0], peer)
    line = place(user_stack(partner.stack)[0])
    clauses: list[Message] = []
    if given and has_gone_past(case, partner.stack, peer):
        past: Message = [f"rank {peer} has gone past the {partner.op} that rank {waiter.rank} awaits, at "]
        clauses.append([past, line, ", which depends on ", Joined(given, " and ")])
    elif given:  # that it was issued there before is not said: its tag may have been another one
        issued: Message = [f"what rank {waiter.rank} awaits is issued at ", line, ", which depends on "]
        clauses.append([issued, Joined(given, " and ")])
    return [*clauses, *awaited_under(case, waiter)]


def by_evidence(case: Case, conditions: list[Condition], rank: int) -> list[Condition]:
    """The conditions, first those under which the rank alone has been by what it ran or wrote; more than
    two of them only where that is known of none.

    Example: `if len(batch) == n:` and `if self.failures > 2:`, under which rank 2 alone has logged something → the
    latter first.
    """
    conditions = still_possible(case, conditions, rank) or conditions
    first = alone_under(case, conditions, rank)
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
        elif not _would_be_out(case, each, rank):
            found[each] = None
    return list(found)


def _would_be_out(case: Case, condition: Condition, rank: int) -> bool:
    """True if the condition's suite passes no message and ends the loop around it, in which the rank is."""
    tree = case.sources.function(condition.file, condition.line)
    here = enclosing_function(tree, condition.line) if tree is not None else ast.Module([], [])
    loop = innermost_loop(here, condition.line)
    tests = [n for n in walk(here) if isinstance(n, ast.If) and n.lineno == condition.line]
    if loop is None or not tests or not isinstance(tests[0].body[-1], ast.Return | ast.Break | ast.Raise):
        return False
    messages = {*names("sends_message"), *names("receives_message"), *names("prepares_message")}
    if any(passes_message(case.sources, call, messages) for call in calls_in(tests[0].body)):
        return False  # what was left out lies in there
    return any(f.file == condition.file and holds(loop, f.line) for f in case.activities[rank].stack)


def alone_under(case: Case, conditions: list[Condition], rank: int) -> list[Condition]:
    """Those of several conditions under which the rank alone has been by what it ran or wrote."""
    others = tuple(sorted(case.seen - {rank}))
    if len(conditions) < 2 or not others:
        return []
    ran = ran_alone(case, ((rank,), others))
    seen = {(each.file, each.guard.line) for each in ran if each.side == 0}
    stacks = [case.activities[rank].stack] if case.activities[rank].stack else []
    written = written_under(case.sources, case.job.written, stacks, (rank,), others) if case.job.written else []
    seen |= {(each.condition.file, each.condition.line) for each in written}
    return [each for each in conditions if (each.file, each.line) in seen]


def awaited_under(case: Case, waiter: Activity) -> list[Message]:
    """A clause on the conditions under which the rank waits for its message, and what it shows of them."""
    told = [[each, _values(case, each, waiter.rank)] for each in ways_past(case, waiter.stack)[0]]
    return [[f"rank {waiter.rank} awaits it under ", Joined(told, " and ")]] if told else []


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
