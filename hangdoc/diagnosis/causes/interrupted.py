"""HD103: an exception takes a rank away from its path."""

from __future__ import annotations

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import END
from hangdoc.diagnosis.causes.diverging import extra_or_missing_call
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import call_at, cited, is_awaited, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.branch_point import BranchPoint, is_left_by_exception, is_telling
from hangdoc.diagnosis.condition.choice import stack_of
from hangdoc.diagnosis.condition.divergence_point import is_own
from hangdoc.diagnosis.condition.elsewhere.caught import (
    Caught,
    by_handler,
    in_exit,
)
from hangdoc.diagnosis.condition.elsewhere.raised import (
    condition_of_raise,
    raised_in_block,
    thrown_under,
)
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged, Explanation
from hangdoc.diagnosis.frames.stacks import lines_of, same_function, user_stack
from hangdoc.diagnosis.state.endings import own_words
from hangdoc.model.journal import Journal
from hangdoc.model.message import Condition, Joined, Message, Place, Ranks, Values, joined, sentence
from hangdoc.model.process import Raised, Stack

_AGREE = "let the exception end the process, or make all ranks agree on it (all_reduce a flag) before any of them "


@cause("HD103", explains=Diverged, order=135)
def out_of_a_block(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD103: the culprits' call is made by the `__exit__` of a `with` that an exception left, which is pending."""
    gap, culprits = blame.found.gap, blame.culprits
    if gap is None or gap.past or gap.token.op == END or not culprits:
        return None
    pending = in_exit(case, culprits[0], _stacks(case, blame, gap))
    if pending is None:
        return None
    block = Condition(pending.condition, pending.frame.file, pending.frame.line)
    error: Message = [f"the {pending.error}", [" of ", place(pending.raised)] if pending.raised else ""]
    at = condition_of_raise(case, culprits)
    # Without a probe, its type says where the block may have raised it.
    there = pending.frame.file, pending.frame.line
    raised = raised_in_block(case.sources, *there, pending.error) if pending.error and not pending.raised else []
    says = _says(case, culprits)
    said = case.last_words(culprits[0])
    return Finding(
        "HD103",
        extra_or_missing_call(case, blame, gap).verdict,
        joined(
            [
                [error if pending.error else "an exception", " led ", Ranks(culprits), " out of ", block],
                ", whose exit communicates before the exception goes on",
            ],
            ["it was raised under ", cited(at.guard, at.file)] if at is not None else "",
            ["it is raised under ", Joined(raised, " or ")] if raised else "",
            f"it says: {says}" if says else "",
            f"it last wrote: {said}" if said else "",
        ),
        "do not communicate where an exception leaves a context (its __exit__ is given one), or let all ranks agree on "
        "it first (all_reduce a flag)",
        decided_at=_raised_at(at) if at is not None else raised[0] if len(raised) == 1 else block,
    )


def _raised_at(point: BranchPoint) -> Condition:
    return Condition(point.guard.condition, point.file, point.guard.line)


@cause("HD103", explains=Diverged, order=162)
def past_a_handler(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD103: a handler ran on the culprits alone, or they are past its block or in a later round of the loop around it,
    and nothing else was found that leads there."""
    gap, point = blame.found.gap, blame.found.branch_point
    if gap is None or gap.token.op == END or gap.mine is None or (point is not None and is_telling(point)):
        return None
    left = [each for each in _left(case, blame, gap) if each.marks or (point is None and _shows(case, gap, each))]
    if point is not None and point.uneven and point.of_library:
        left = _left(case, blame, gap)  # its loop goes on past what the program raises
        left = [each for each in left if thrown_under(case.sources, each.frame.file, each.by.line)]
    if not left or (point is not None and point.uneven and not point.of_library):
        return None
    caught, culprits = max(left, key=lambda each: bool(each.marks)), blame.culprits
    handler = Condition(caught.by.condition, caught.frame.file, caught.by.line)
    shown: list[Message] = [[f"{name} = ", Values(seen)] for name, seen in {**caught.marks, **caught.rounds}.items()]
    said = case.last_words(culprits[0])
    return Finding(
        "HD103",
        sentence(
            [
                [Ranks(culprits), " left the block at ", Place(caught.frame.file, caught.by.first)],
                [" by an exception that ", handler, " caught, and went on to ", call_at(gap.mine)],
            ],
            where_they_wait(case, others_of(case, blame)),
        ),
        joined(
            [handler, " led ", Ranks(culprits), " past the collectives that the others still issue"],
            ["it shows in ", Joined(shown, " and ")] if shown else "",
            "" if shown or point is not None else "no condition was found that leads there",
            f"it last wrote: {said}" if said else "",
        ),
        _AGREE + "skips",
        "the exception itself was not seen" + ("" if caught.marks or case.programs else _OR_FEWER),
        decided_at=handler,
    )


_OR_FEWER = ", and a library that makes fewer calls there looks the same"


def _shows(case: Case, gap: Gap, caught: Caught) -> bool:
    """True if where the culprits are shows that they left the block, and did not just make fewer calls in its line.

    Example: the others' last calls are A B, from two lines of the block, the culprits' A and then A of the next round →
    True; A B B of the others against A B and then A → False: the culprits were in that line as well.
    """
    if caught.passed:  # what only waits for a call is not where it was made, and nothing was sought around it
        return gap.theirs is not None and not is_awaited(gap.theirs)
    if gap.mine is None or gap.theirs is None:
        return False
    program = case.programs.get(gap.mine.rank)
    before = program.token(gap.mine.order - 1) if program is not None and gap.mine.order > 0 else None
    if is_own(gap):  # their own call always followed the one that they made last, in that block
        way = user_stack(before.stack) if before is not None else ()
        return any(same_function(frame, caught.frame) and caught.by.tries(frame.line) for frame in way)
    return bool(caught.rounds) and (before is None or lines_of(before.site) != lines_of(gap.theirs.site))


def perhaps_caught(case: Case, blame: Blame[Explanation], code: str) -> str:
    """What to say of a verdict that would be certain where a handler of the user's may have led the culprits past the
    others' call; '' where it names an exception, or a condition whose values show which way each side went."""
    found = blame.found
    if not isinstance(found, Diverged) or code in ("HD103", "HD112") or found.gap is None:
        return ""
    point = found.branch_point
    if found.gap.token.op == END or found.gap.theirs is None or (point is not None and is_telling(point)):
        return ""
    if code == "HD102" and point is not None and is_left_by_exception(point):
        return ""  # that exception is what it says: nothing was left to go over
    left = _left(case, Blame(found, blame.culprits), found.gap)
    skips = next((p.guard for p in found.branch_points if _is_skipping_handler(p)), None)
    if not left and skips is not None:
        return f"an exception that `{skips.condition}` caught looks the same"
    if not left and any(p.guard.condition == "finally:" and p.guarded == 0 for p in found.branch_points):
        return "an exception that leads to `finally:` looks the same"
    return f"an exception that `{left[0].by.condition}` caught looks the same" if left else ""


def _is_skipping_handler(point: BranchPoint) -> bool:
    """True for an `except` before the others' call that jumps past it."""
    return point.guard.kind == "try" and not point.guard.taken and point.guarded == 1 and not point.of_library


def _left(case: Case, blame: Blame[Diverged], gap: Gap) -> list[Caught]:
    """What the culprits may have left by an exception that was swallowed."""
    return by_handler(case, _stacks(case, blame, gap), (blame.culprits, others_of(case, blame)))


def _stacks(case: Case, blame: Blame[Diverged], gap: Gap) -> tuple[Stack, Stack]:
    """Where the culprits and the others diverged; of a call of their own arm, where the culprits made it before."""
    theirs = gap.token.stack if is_own(gap) else stack_of(case, gap.theirs, others_of(case, blame))
    return stack_of(case, gap.mine, blame.culprits), theirs


def _handling(case: Case, ranks: tuple[int, ...]) -> Journal | None:
    """The journal of the first of these ranks that still handles an exception."""
    journals = (case.ranks[rank].journal for rank in ranks if rank in case.ranks)
    return next((journal for journal in journals if journal is not None and journal.handled), None)


def _says(case: Case, ranks: tuple[int, ...]) -> str:
    """The text of the exception that a rank still handles."""
    journal = _handling(case, ranks)
    return own_words(Raised(journal.handled, journal.handled_message, journal.handled_at)) if journal else ""
