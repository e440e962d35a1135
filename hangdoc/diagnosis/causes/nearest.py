"""What the reasons add: the nearest test that may have parted the ranks, where none was seen to, and the test under
which was raised what a handler caught.

Example: rank 2 waits in the join of a thread that ended under `if number == limit:` (writer.py:16), and nothing shows
what `limit` was → that test, as one that may have led there.
"""

from __future__ import annotations

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.causes.finding import others_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.program.items import Predicate
from hangdoc.diagnosis.reason.judged import Reason, line_of_item
from hangdoc.diagnosis.reason.known import Strength, is_rank_name
from hangdoc.diagnosis.reason.provisions import is_library_file
from hangdoc.diagnosis.reason.reasons import Found, reasons
from hangdoc.diagnosis.reason.relays import LOOPS
from hangdoc.diagnosis.reason.starts import Kind, Sides, parted_at
from hangdoc.diagnosis.source.evaluate import names_in
from hangdoc.model.diagnosis import Branch, BranchAnswer
from hangdoc.model.message import Condition, Message, Ranks, conditions_in


def may_have_led_there(case: Case, blame: Blame[Explanation]) -> Message:
    """'the nearest test that may have led rank 2 there is `if number == limit:` (writer.py:16)'; '' without one."""
    found = reasons_of(case, blame).reasons if blame.culprits and others_of(case, blame) else ()
    if not found or not _is_news(case, blame, found[0]):
        return ""
    item = found[0].item
    test = Condition(line_of_item(case, item), item.file, item.line)
    return ["the nearest test that may have led ", Ranks(blame.culprits), " there is ", test]


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


def _is_news(case: Case, blame: Blame[Explanation], reason: Reason) -> bool:
    """True of a test of the program's own that leads one way or another. One of the rank alone is there by design, and
    most loops go alike; one in which the culprits wait has not come out yet."""
    item = reason.item
    if not isinstance(item, Predicate) or item.kind in (*LOOPS, "ifexp") or is_library_file(item.file):
        return False
    now = (frame for rank in blame.culprits for frame in case.activities[rank].stack)
    if any(frame.file == item.file and item.line <= frame.line <= item.end_line for frame in now):
        return False
    asked = names_in(item.subject)
    return not asked or not all(map(is_rank_name, asked))


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
