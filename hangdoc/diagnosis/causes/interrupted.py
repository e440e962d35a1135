"""HD103, HD112, HD702: what takes a rank away from its path: an exception, the interpreter, the end."""

from __future__ import annotations

from hangdoc.diagnosis.blame.tie_break import interrupting
from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import END, Token
from hangdoc.diagnosis.causes.deciding import what_decided
from hangdoc.diagnosis.causes.diverging import extra_or_missing_call, no_condition
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import call_at, cited, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.branch_point import BranchPoint, is_left_by_exception
from hangdoc.diagnosis.condition.loop_counts import fell_out
from hangdoc.diagnosis.condition.raised import condition_of_raise
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import same_place, user_stack
from hangdoc.diagnosis.source.loops import tries_again
from hangdoc.diagnosis.source.queries import leads_to, raises
from hangdoc.model.message import Does, Message, Ranks, joined, sentence
from hangdoc.model.process import Frame, Stack


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
    led: Message = (
        "into calls that the others do not issue" if repeats else "past the collectives that the others still issue"
    )
    tree = case.sources.function(point.file, point.guard.line)
    again = tree is not None and tries_again(tree, point.guard.line)
    if is_left_by_exception(point) and point.guarded == 0 and not again:
        thrown = others_of(case, blame)
        led = ["past the call that ", Does(blame.culprits, "still issues", "still issue")]
    at = condition_of_raise(case, thrown) or point
    return Finding(
        "HD103",
        finding.verdict,
        joined(
            [
                ["the ranks diverge at ", cited(at.guard, at.file), ": "],
                [_handled(case, thrown), " led ", Ranks(thrown), " ", led],
            ],
            f"it last wrote: {said}" if said else "",
        ),
        "let the exception end the process, or make all ranks agree on it (all_reduce a flag) before any of them "
        + ("calls again" if repeats else "skips"),
    )


def _handled(case: Case, ranks: tuple[int, ...]) -> Message:
    """'the ValueError of train.py:12 load()', where a rank is still in its except or finally suite."""
    for rank in ranks:
        journal = case.ranks[rank].journal if rank in case.ranks else None
        if journal is not None and journal.handled:
            where = place(next(iter(user_stack(journal.handled_at)), None))
            return [f"the {journal.handled}", [" of ", where] if where else ""]
    return "an exception"


def _handler(case: Case, blame: Blame[Diverged]) -> BranchPoint | None:
    """The guard that an exception led out of: a `try` where the sides diverged, or around the `raise` where they did;
    a loop that an exception ended; None where no exception explains the divergence."""
    first = blame.found.branch_point
    if first is None or first.guard.kind == "try" or _exception_ended_loop(case, blame, first):
        return first
    tree = case.sources.function(first.file, first.guard.line)
    if first.guard.kind != "return" or tree is None or not raises(tree, first.guard.line):
        return None
    # A rank that raised and goes on was caught, perhaps by a library.
    return _taken_handler(blame) or (first if first.guarded == 1 else None)


def _exception_ended_loop(case: Case, blame: Blame[Diverged], loop: BranchPoint) -> bool:
    """True if the culprits left the loop by falling out of it, not at its condition or a `break`."""
    mine = blame.found.gap.mine if blame.found.gap is not None else None
    return loop.uneven and loop.guarded == 1 and fell_out(case, loop, blame.culprits, mine)


def _taken_handler(blame: Blame[Diverged]) -> BranchPoint | None:
    """The `except` or `finally` suite that the culprits are in."""
    handlers = (p for p in blame.found.branch_points if p.guard.kind == "try" and p.guarded == 0 and p.guard.taken)
    return next(handlers, None)


@cause("HD702", explains=Diverged, order=200)
def shut_down_early(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD702: the extra call is the last before destroy_process_group, where the others still communicate."""
    gap = blame.found.gap
    if gap is None or gap.kind != "delete" or gap.token.op == END or gap.mine is None or gap.theirs is None:
        return None
    if not _shuts_down(case, gap.mine) or _shuts_down(case, gap.theirs) or _is_on_the_way(gap.mine, gap.theirs):
        return None
    if any(same_place(gap.mine.frame, frame) for frame in user_stack(gap.theirs.stack) if gap.mine.frame):
        return None  # the others are below that very line, in what a library runs there
    culprits = blame.culprits
    return Finding(
        "HD702",
        sentence(
            [
                [Does(culprits, "shuts", "shut"), " down, in ", call_at(gap.mine)],
                " before destroy_process_group, while the others still communicate",
            ],
            where_they_wait(case, others_of(case, blame)),
        ),
        what_decided(case, blame) or no_condition(case, blame, gap),
        "let all ranks agree that it is over (all_reduce a flag) and reach the shutdown together",
    )


def _is_on_the_way(mine: Token, theirs: Token) -> bool:
    """True if the others' call is made below the very line that ``mine`` is: neither side is past it.

    Example: of `trainer.run(data)`, mine is the library's own call, theirs one of the user's step that it runs.
    """
    frame = mine.frame
    return frame is not None and any(same_place(frame, other) for other in user_stack(theirs.stack))


def _shuts_down(case: Case, token: Token) -> bool:
    frame = token.frame
    tree = case.sources.function(frame.file, frame.line) if frame is not None else None
    return (
        tree is not None
        and frame is not None
        and any(leads_to(tree, frame.line, name) for name in names("destroys_group"))
    )


@cause("HD112", explains=Diverged, order=130)
def asynchronous_code(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD112: the collective was run by a finalizer or a signal handler, at an arbitrary point."""
    gap = blame.found.gap
    if gap is None or gap.token.op == END:
        return None
    handler = interrupting(case, gap.token.stack)
    if handler is None:
        return _out_of_a_coroutine(case, blame, gap)
    finding = extra_or_missing_call(case, blame, gap)
    return Finding(
        "HD112",
        finding.verdict,
        [
            [place(handler), " is run by the interpreter at an arbitrary moment (a finalizer, a signal handler or a "],
            "callback), which differs from rank to rank",
        ],
        "never communicate in __del__, signal handlers or callbacks: set a flag there and act on it in the loop",
    )


def _out_of_a_coroutine(case: Case, blame: Blame[Diverged], gap: Gap) -> Finding | None:
    """HD112 of two calls that come from tasks or callbacks of an event loop, which runs them as they get ready."""
    tasks = [_task(token.stack) if token is not None else None for token in (gap.mine, gap.theirs)]
    if None in tasks or tasks[0] == tasks[1]:
        return None
    finding = extra_or_missing_call(case, blame, gap)
    return Finding(
        "HD112",
        finding.verdict,
        [
            [place(tasks[0]), " and ", place(tasks[1]), " are run by an event loop, "],
            "in the order in which they get ready, which differs from rank to rank",
        ],
        "await them one after the other, in an order that all ranks share, or give each a process group of its own",
    )


def _task(stack: Stack) -> Frame | None:
    """The outermost user frame that an asyncio event loop runs (asyncio/events.py, Python 3.8 to 3.14)."""
    for index, frame in enumerate(stack):
        if frame.file.endswith("/asyncio/events.py") and plain(frame.function) == "_run":
            return next(reversed(user_stack(stack[:index])), None)
    return None
