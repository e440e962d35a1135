"""What the reasons add: the nearest test that may have parted the ranks, where none was seen to, and the test under
which was raised what a handler caught.

Example: rank 2 waits in the join of a thread that ended under `if number == limit:` (writer.py:16), and nothing shows
what `limit` was → that test, as one that may have led there.
"""

from __future__ import annotations

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.causes.finding import others_of
from hangdoc.diagnosis.condition.by_value import parted_by_value
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.program.items import Predicate
from hangdoc.diagnosis.reason.judged import Reason, line_of_item
from hangdoc.diagnosis.reason.known import Strength
from hangdoc.diagnosis.reason.reasons import Found, reasons
from hangdoc.diagnosis.reason.starts import Kind, Sides, parted_at
from hangdoc.diagnosis.source.guards import loops_around
from hangdoc.model.diagnosis import Branch, BranchAnswer, Divergence
from hangdoc.model.message import Condition, Message, Ranks, conditions_in

_WORTH_A_LOOK = 0.5
"""The share from which on a reason is shown: of these, four of five are right or belong to the chain (``why.py``)."""
_KINDS = {"for": "loop", "while": "loop", "comprehension": "loop", "except": "try", "with": "try", "match": "match"}
"""Kind of a predicate → that of a branch; 'if' of any other."""


def likeliest(case: Case, blame: Blame[Explanation]) -> tuple[Branch | None, Message]:
    """The likeliest of the reasons, and in words; (None, '') where none is likely enough to look at."""
    found = reasons_of(case, blame).reasons if blame.culprits and others_of(case, blame) else ()
    if not found or found[0].share < _WORTH_A_LOOK:
        return None, ""
    item = found[0].item
    at = Condition(line_of_item(case, item), item.file, item.line)
    if isinstance(item, Predicate) and _is_polled(case, item, blame):
        return None, ""
    if isinstance(item, Predicate):
        kind = _KINDS.get(item.kind, "if")
        return Branch(at.file, at.line, at.source, kind), ["what likely led ", Ranks(blame.culprits), " there is ", at]
    return Branch(at.file, at.line, at.source, "expression"), ["what likely differs is set by ", at]


def _is_polled(case: Case, item: Predicate, blame: Blame[Explanation]) -> bool:
    """True of a loop that the others wait in, and the culprits do not: it tells what these wait for, and has led the
    culprits nowhere. Example: `while not path.exists(): time.sleep(1)` of ranks 1 and 2, rank 0 in a barrier → True."""
    if item.kind != "while":
        return False

    def waits(rank: int) -> bool:
        frame = case.activities[rank].where
        if frame is None or (frame.file, plain(frame.function)) != (item.file, plain(item.function)):
            return False
        tree = case.sources.function(frame.file, frame.line)
        return any(guard.line == item.line for guard in loops_around(tree, frame.line))

    return any(map(waits, others_of(case, blame))) and not any(map(waits, blame.culprits))


def new_decision(case: Case, blame: Blame[Explanation], found: Divergence | None) -> tuple[Branch | None, Message]:
    """The decision that came out on the culprits alone as never before, where recorded tests show one, and the ranks
    have not been seen to part at a condition around their calls; and that in words, '' of the divergence's own.

    Example: `if not quota.admit(size):` ended the thread that was to fill rank 1's queue → that `if`.
    """
    branch = found.branch if found is not None else None
    ranks = blame.culprits, others_of(case, blame)
    parted = blame.diverged is not None and blame.diverged.is_recorded
    new = case.execution.new(*ranks) if all(ranks) and not parted else {}
    if branch is not None and any(key[:2] == (branch.file, branch.line) for key in new):
        return branch, ""
    decided = parted_by_value(case, ranks, gap_of(blame)) if new else None
    if decided is None:
        return None, ""
    at = Condition(decided.condition, decided.file, decided.line)
    return decided, [at, f" was {decided.values[0].value} on ", Ranks(blame.culprits), " alone, for the first time"]


def raised_under(case: Case, blame: Blame[Explanation], handler: Branch, said: Message) -> tuple[Branch, Message]:
    """In place of the handler the test under which the culprits alone have come to a `raise` that it may catch; and
    that in words, if it is not ``said``. The handler itself where nothing shows such a test, or others are said.

    Example: rank 2 is past `except ValueError:`, and it alone has run the `raise` under `if not len(positive):` → that
    test.
    """
    found = reasons_of(case, blame).reasons if others_of(case, blame) else ()
    item = next((each.item for each in found if _was_raised_under(each)), None)
    if item is None:
        return handler, ""
    told = {(each.file, each.line) for each in conditions_in(said)}
    news = (item.file, item.line) not in told
    if news and (handler.answers or told - {(handler.file, handler.line)}):
        return handler, ""
    test = Condition(line_of_item(case, item), item.file, item.line)
    words: Message = [Ranks(blame.culprits), " alone came to the `raise` under ", test] if news else ""
    caught = BranchAnswer(item.function, handler.file, handler.line, handler.condition, subject="what is caught")
    return Branch(item.file, item.line, test.source, "if", answers=(caught,)), words


def _was_raised_under(reason: Reason) -> bool:
    proved = reason.start == Kind.RAISED and reason.strength == Strength.PROVED
    return proved and isinstance(reason.item, Predicate)


def reasons_of(case: Case, blame: Blame[Explanation], culprits: tuple[int, ...] = ()) -> Found:
    """What parted the culprits from the others; ``culprits``: where others than the blamed ones are meant."""
    sides = sides_of(case, blame, culprits)
    return reasons(case, sides, parted_at(gap_of(blame), sides))


def sides_of(case: Case, blame: Blame[Explanation], culprits: tuple[int, ...] = ()) -> Sides:
    """The sides as they are blamed; with ``culprits``, all others against these."""
    if culprits and {*culprits} != {*blame.culprits}:
        return Sides(culprits, tuple(sorted(set(case.activities) - set(culprits) - case.hidden)))
    return Sides(tuple(sorted(blame.culprits)), others_of(case, blame))


def gap_of(blame: Blame[Explanation]) -> Gap | None:
    """Where the calls of the sides diverge, if that is what they are blamed for."""
    return blame.diverged.gap if blame.diverged is not None else None
