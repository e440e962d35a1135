"""HD112: what the interpreter or an event loop runs at a moment of its own calls a collective."""

from __future__ import annotations

from hangdoc.diagnosis.blame.interrupting import interrupting
from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import END
from hangdoc.diagnosis.causes.diverging import extra_or_missing_call
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import place
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.awaits import is_one_task
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
    if None in tasks or tasks[0] == tasks[1] or is_one_task(case.sources, *tasks):
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
