"""HD112: what the interpreter or an event loop runs at a moment of its own calls a collective."""

from __future__ import annotations

from hangdoc.diagnosis.blame.interrupting import interrupting
from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import END
from hangdoc.diagnosis.causes.diverging import extra_or_missing_call
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import call_at, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.awaits import is_one_task
from hangdoc.model.message import Does, sentence
from hangdoc.model.process import Frame, Stack


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
    registered = case.sources.registered_with(handler.file, plain(handler.function))
    return Finding(
        "HD112",
        finding.verdict,
        [
            [place(handler), f" is registered with {registered}: " if registered else " is a finalizer: "],
            "the interpreter runs it at an arbitrary moment, which differs from rank to rank",
        ],
        [
            [
                "never communicate in ",
                place(handler),
                ": let it set a flag, and act on that flag in the loop, once all ",
            ],
            "ranks agree on it (all_reduce)",
        ],
    )


def _out_of_a_coroutine(case: Case, blame: Blame[Diverged], gap: Gap) -> Finding | None:
    """HD112 of two calls that come from tasks or callbacks of an event loop, which runs them as they get ready."""
    tasks = [_task(token.stack) if token is not None else None for token in (gap.mine, gap.theirs)]
    if None in tasks or tasks[0] == tasks[1] or is_one_task(case.sources, *tasks):
        return None
    assert gap.mine is not None and gap.theirs is not None
    others = others_of(case, blame)
    return Finding(
        "HD112",
        sentence(
            [
                [Does(blame.culprits, "calls", "call"), " ", call_at(gap.mine), " where "],
                [Does(others, "calls", "call"), " ", call_at(gap.theirs)],
            ],
            where_they_wait(case, others) if case.programs else "",
        ),
        [
            [place(tasks[0]), " and ", place(tasks[1]), " are run by an event loop, "],
            "in the order in which they get ready, which differs from rank to rank",
        ],
        "await them one after the other, in an order that all ranks share",
    )


def _task(stack: Stack) -> Frame | None:
    """The outermost user frame that an asyncio event loop runs (asyncio/events.py, Python 3.8 to 3.14)."""
    for index, frame in enumerate(stack):
        if frame.file.endswith("/asyncio/events.py") and plain(frame.function) == "_run":
            return next(reversed(user_stack(stack[:index])), None)
    return None
