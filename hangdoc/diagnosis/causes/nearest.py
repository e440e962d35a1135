"""What the reasons add to a condition: that it came out so for the first time, and the test under which was raised what
a handler caught.
"""

from __future__ import annotations

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.causes.finding import others_of
from hangdoc.diagnosis.condition.by_value import parted_by_value
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.program.items import Predicate
from hangdoc.diagnosis.reason.judged import Reason, line_of_item
from hangdoc.diagnosis.reason.known import Strength
from hangdoc.diagnosis.reason.reasons import Found, reasons
from hangdoc.diagnosis.reason.starts import Kind, Sides, parted_at
from hangdoc.model.diagnosis import Branch, BranchAnswer, Divergence
from hangdoc.model.message import Condition, Message, Ranks, conditions_in


def new_decision(case: Case, blame: Blame[Explanation], found: Divergence | None) -> tuple[Branch | None, Message]:
    """The decision that came out on the culprits alone as never before, where recorded tests show one, and the ranks
    have not been seen to part at a condition around their calls; and that in words, '' of the divergence's own.

    Example: `if not quota.admit(size):` ended the thread that was to fill rank 1's queue → that `if`.
    """
    branch = found.branch if found is not None else None
    ranks = blame.culprits, others_of(case, blame)
    parted = blame.diverged is not None and blame.diverged.is_recorded
    new = case.execution.once_only(*ranks) if all(ranks) and not parted else {}
    if branch is not None and any(key[:2] == (branch.file, branch.line) for key in new):
        return branch, ""
    decided = parted_by_value(case, ranks, gap_of(blame), ever=True) if new else None
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
