"""HD103: an exception takes a rank away from its path."""

from __future__ import annotations

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import END
from hangdoc.diagnosis.causes.diverging import extra_or_missing_call, others_call_it
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import call_at, cited, is_awaited, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.branch_point import BranchPoint, branch_point, is_left_by_exception, is_telling
from hangdoc.diagnosis.condition.choice import stack_of
from hangdoc.diagnosis.condition.divergence_point import is_own
from hangdoc.diagnosis.condition.elsewhere.caught import (
    Caught,
    by_handler,
    in_exit,
    is_run_by_library,
    only_handler,
    repeating_handler,
    runs_a_library,
)
from hangdoc.diagnosis.condition.elsewhere.raised import (
    condition_of_raise,
    raised_in_block,
    raised_on_the_way,
    thrown_under,
)
from hangdoc.diagnosis.condition.loops.ended_by_exception import fell_out
from hangdoc.diagnosis.condition.told import came_to_handler
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.execution.caught import caught_alone
from hangdoc.diagnosis.explanation import Blame, Diverged, Explanation
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.stacks import lines_of, same_function, user_stack
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.handlers import only_looks_up
from hangdoc.diagnosis.source.loops import tries_again
from hangdoc.diagnosis.source.queries import raises
from hangdoc.diagnosis.state.endings import own_words
from hangdoc.model.branches import Caught as Recorded
from hangdoc.model.journal import Journal
from hangdoc.model.message import Condition, Does, Joined, Message, Place, Ranks, Values, joined, sentence
from hangdoc.model.process import Frame, Raised, Stack

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


@cause("HD103", explains=Diverged, order=180)
def after_an_exception(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD103: one side is in an except or finally suite, or left the try body by an exception."""
    gap, point = blame.found.gap, _handler(case, blame)
    if gap is None or point is None or gap.token.op == END:
        return None
    finding = extra_or_missing_call(case, blame, gap)
    said = case.last_words(blame.culprits[0])
    repeats = gap.kind == "delete"
    thrown = blame.culprits
    led: Message = "past the collectives that the others still issue"
    if repeats:
        shared = others_call_it(case, blame, gap)
        led = "into a call that the others do not make there" if shared else "into calls that the others do not issue"
    tree = case.sources.function(point.file, point.guard.line)
    again = tree is not None and tries_again(tree, point.guard.line)
    if is_left_by_exception(point) and point.guarded == 0 and not again:
        thrown = others_of(case, blame)
        led = ["past the call that ", Does(blame.culprits, "still issues", "still issue")]
    raised = condition_of_raise(case, thrown)
    only = _caught_by(case, blame, gap, point) if raised is None else None
    if again and raised is None:
        only = repeating_handler(case.sources, gap, point)
    before = raised_on_the_way(case.sources, point, gap.theirs.stack if gap.theirs and raised is None else ())
    decided = _as_condition(raised) or only or cited(point.guard, point.file)
    says = _says(case, thrown)
    return Finding(
        "HD103",
        finding.verdict,
        joined(
            [
                ["the ranks diverge at ", decided, ": "],
                [_handled(case, thrown, point), " led ", Ranks(thrown), " ", led],
            ],
            f"it says: {says}" if says else "",
            f"it last wrote: {said}" if said else "",
            ["the program raises under ", Joined(before, " and ")] if before else "",
        ),
        _AGREE + ("calls again" if repeats else "skips"),
        "the exception itself was not seen"
        if before
        else ""
        if _recorded(case, point, thrown)
        else _doubt(case, blame, gap, point, thrown, only) or _only_written(case, blame, gap, point),
        decided_at=before[0] if before else None if only is None and _is_shown(blame, point, raised) else decided,
    )


def _caught_by(case: Case, blame: Blame[Diverged], gap: Gap, point: BranchPoint) -> Condition | None:
    """The handler that must have caught it; of a loop that an exception ended, in whose header nothing differs, that of
    the `try:` around it."""
    tries = [point] if point.guard.kind != "loop" else blame.found.branch_points
    return next((found for each in tries if (found := only_handler(case.sources, gap, each)) is not None), None)


def _only_written(case: Case, blame: Blame[Diverged], gap: Gap, point: BranchPoint) -> str:
    """What there is to doubt where the output tells of the handler, and no exception was seen to be handled."""
    sides = gap.mine.stack if gap.mine else (), gap.theirs.stack if gap.theirs else ()
    ranks = blame.culprits, others_of(case, blame)
    seen = any((journal := case.ranks[r].journal) is not None and journal.handled for r in ranks[0])
    return "" if seen or not came_to_handler(case, point, sides, ranks) else "only the output tells of the exception"


_NO_EXCEPTION_SEEN = "the exception itself was not seen" + _OR_FEWER


def _doubt(
    case: Case, blame: Blame[Diverged], gap: Gap, point: BranchPoint, thrown: tuple[int, ...], only: Condition | None
) -> str:
    """What looks the same as an exception that was not seen: a library that runs the `try` less often, a condition on
    the way that leaves the function as the handler does."""
    if only is not None and is_run_by_library(gap, point):
        return _NO_EXCEPTION_SEEN
    if _handling(case, thrown) is not None:
        return ""
    if only is not None and runs_a_library(gap, point):
        return _NO_EXCEPTION_SEEN
    if point.guard.condition == "finally:":
        return "the exception itself was not seen"
    jumps = (p for p in blame.found.branch_points if p.guard.kind == "return" and not p.of_library)
    first = blame.found.branch_point
    if first is None or point is not first or first.guarded != 1 or first.guard.kind != "try" or first.guard.taken:
        return ""
    either = next((p for p in jumps if p.guarded == 1 and (p.file, p.function) == (first.file, first.function)), None)
    return (
        f"the exception itself was not seen, and `{either.guard.condition}` can skip the call as well" if either else ""
    )


def _as_condition(point: BranchPoint | None) -> Condition | None:
    return cited(point.guard, point.file) if point is not None else None


def _is_shown(blame: Blame[Diverged], point: BranchPoint, raised: BranchPoint | None) -> bool:
    """True where the branch of the two stacks is what the cause names, or a loop that shows the way out of it."""
    first = blame.found.branch_point
    return first is not None and not first.of_library and (raised is not None or point is first)


def _handling(case: Case, ranks: tuple[int, ...]) -> Journal | None:
    """The journal of the first of these ranks that still handles an exception."""
    journals = (case.ranks[rank].journal for rank in ranks if rank in case.ranks)
    return next((journal for journal in journals if journal is not None and journal.handled), None)


def _says(case: Case, ranks: tuple[int, ...]) -> str:
    """The text of the exception that a rank still handles."""
    journal = _handling(case, ranks)
    return own_words(Raised(journal.handled, journal.handled_message, journal.handled_at)) if journal else ""


def _recorded(case: Case, point: BranchPoint, ranks: tuple[int, ...]) -> dict[int, Recorded]:
    """Rank → what it caught where the sides were seen to part, and no other rank."""
    processes = {rank: each.process for rank, each in case.ranks.items()}
    return caught_alone(case.sources, processes, point.file, point.guard, ranks) if point.recorded else {}


def _handled(case: Case, ranks: tuple[int, ...], point: BranchPoint) -> Message:
    """'the ValueError of train.py:12 load()', where a rank is still in its except or finally suite, or recorded it."""
    journal = _handling(case, ranks)
    if journal is None:
        known = [*_recorded(case, point, ranks).values()]
        if not known or any(
            (each.exception, each.file, each.line) != (known[0].exception, known[0].file, known[0].line)
            for each in known
        ):
            return "an exception"
        by = known[0]
        return [f"the {by.exception}", [" of ", place(Frame(by.file, by.line, by.function))] if by.file else ""]
    where = place(next(iter(user_stack(journal.handled_at)), None))
    return [f"the {journal.handled}", [" of ", where] if where else ""]


def _handler(case: Case, blame: Blame[Diverged]) -> BranchPoint | None:
    """The guard that an exception led out of: a `try` where the sides diverged, or around the `raise` where they did;
    a loop that an exception ended; None where no exception explains the divergence."""
    first = blame.found.branch_point
    if first is not None and _only_looked_up(case, blame, first):
        return None
    if first is None or first.guard.kind == "try" or _exception_ended_loop(case, blame, first):
        return first
    tree = case.sources.function(first.file, first.guard.line)
    if first.guard.kind != "return" or tree is None or not raises(tree, first.guard.line):
        return None
    # A rank that raised and goes on was caught, perhaps by a library.
    if first.of_library:
        return _handler_of_library(case, blame) or (first if first.guarded == 1 else None)
    return first if first.guarded == 1 else None


def _only_looked_up(case: Case, blame: Blame[Diverged], first: BranchPoint) -> bool:
    """True if the culprits alone make a call in a suite for what a table has not got yet: nothing went wrong."""
    gap, tree = blame.found.gap, case.sources.function(first.file, first.guard.line)
    in_suite = first.guard.kind == "try" and first.guard.taken and first.guarded == 0
    return bool(in_suite and gap and gap.kind == "delete" and tree and only_looks_up(tree, first.guard.line))


def _handler_of_library(case: Case, blame: Blame[Diverged]) -> BranchPoint | None:
    """The `except` suite of a library that the culprits' call is made in, the innermost.

    Example: a trainer's `except Exception: ⏎ self.handle(error)`, and handle() runs a callback that communicates.
    """
    gap = blame.found.gap
    for frame in gap.mine.stack if gap is not None and gap.mine is not None else ():
        tree = case.sources.function(frame.file, frame.line) if is_library(frame) else None
        for guard in reversed(guards(tree, frame.line) if tree is not None else []):
            if guard.kind == "try" and guard.taken and guard.condition.startswith("except"):
                return branch_point(guard, frame, 0, 0.0)
    return None


def _exception_ended_loop(case: Case, blame: Blame[Diverged], loop: BranchPoint) -> bool:
    """True if the culprits left the loop by falling out of it, not at its condition or a `break`."""
    mine = blame.found.gap.mine if blame.found.gap is not None else None
    return loop.uneven and loop.guarded == 1 and fell_out(case, loop, blame.culprits, mine)
