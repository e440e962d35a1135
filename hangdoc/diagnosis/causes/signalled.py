"""HD102 of a loop that the program itself ends by an exception: nothing failed, some ranks were told to stop."""

from __future__ import annotations

from hangdoc.diagnosis.calls.history import END
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import cited, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.elsewhere.caught import only_handler
from hangdoc.diagnosis.condition.elsewhere.raised import is_own_signal, thrown_under
from hangdoc.diagnosis.condition.loops.ended_by_exception import fell_out
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.source.guards import Guard, guards
from hangdoc.diagnosis.source.loops import ends_alike, ways_out
from hangdoc.model.message import Joined, Message, Place, Ranks, joined, sentence


@cause("HD102", explains=Diverged, order=164)
def left_by_own_signal(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD102: an exception class of the program's own, which is no error, took the culprits out of the loop that the
    others are still in.

    Example: `try: ⏎ for step in range(n): ⏎ train(step) ⏎ except OutOfTime: ⏎ log.info("time is up")`, and train()
    raises it under `if clock.elapsed() > budget:`.
    """
    gap, point = blame.found.gap, blame.found.branch_point
    if gap is None or gap.token.op == END or gap.theirs is None or point is None or point.guarded != 1:
        return None
    tried = next((p for p in blame.found.branch_points if _is_around(p, point)), None)
    loop = _loop_in(case, tried) if tried is not None else None
    handler = only_handler(case.sources, gap, tried) if tried is not None else None
    if tried is None or loop is None or handler is None:
        return None
    if point is not tried and point.guard.place != loop.place:
        return None
    tree = case.sources.function(tried.file, loop.line)
    if tree is None or (point is not tried and ways_out(tree, loop.line)):
        return None  # which of the ways out it was, what is seen of the loop tells
    sure = point is tried or ends_alike(tree, loop.line) or fell_out(case, point, blame.culprits, gap.mine)
    raised = thrown_under(case.sources, handler.file, handler.line)
    tests = [test for answer in raised for test in answer.tests]
    if not tests or not is_own_signal(case.sources, handler.file, handler.line):
        return None
    culprits, others = blame.culprits, others_of(case, blame)
    condition = tests[0].source.removeprefix("if ").removesuffix(":")
    agree = f"`{condition}`" if len(tests) == 1 else "these conditions"
    doubt = "" if len(tests) == 1 else "which of the conditions that leave the loop it was is not seen"
    at = cited(loop, tried.file)
    itself: Message = ["or ", at, " had nothing more to go over on ", Ranks(culprits)]
    return Finding(
        "HD102",
        sentence(
            [Ranks(culprits), " left the loop early (", Place(tried.file, loop.line), ")"],
            where_they_wait(case, others),
        ),
        joined(
            [at, " ended on ", Ranks(culprits), " and not on ", Ranks(others), ", by ", handler],
            ["what it catches is raised under ", Joined(tests, " or ")],
            "" if sure else itself,
        ),
        f"let all ranks agree on {agree} in every round (all_reduce the flag), so that all leave the loop in the same "
        "one",
        doubt if sure else "a loop that had nothing more to go over looks the same",
        tests[0] if len(tests) == 1 else handler,
        None if sure else at,
    )


def _is_around(tried: BranchPoint, first: BranchPoint) -> bool:
    """True for the user's `try:` where the sides diverged, or around the loop that they left there."""
    if tried.guard.condition != "try:" or tried.guarded != 1 or tried.of_library:
        return False
    return tried is first or (first.uneven and tried.file == first.file and tried.guard.holds(first.guard.line))


def _loop_in(case: Case, tried: BranchPoint) -> Guard | None:
    """The outermost loop in the body of the `try:` in which the others still are."""
    tree = case.sources.function(tried.file, tried.line)
    around = guards(tree, tried.line) if tree is not None else []
    return next((g for g in around if g.kind == "loop" and tried.guard.line < g.line), None)
