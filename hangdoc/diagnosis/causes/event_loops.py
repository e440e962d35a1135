"""HD5xx of a rank whose event loop (asyncio) has nothing to run: by what the awaiting task waits for."""

from __future__ import annotations

from hangdoc.diagnosis.causes.ending_calls import ending_condition, set_by_hand
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import doing, line_of, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, OutsideWait
from hangdoc.diagnosis.frames.landmarks import below_user, plain
from hangdoc.diagnosis.source.awaits import awaits_own_future, only_await
from hangdoc.diagnosis.source.calls_between import places_of_methods, receiver_of
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.message import Does, Message, Ranks, joined, sentence
from hangdoc.model.process import Frame

_CODES = {
    "/asyncio/queues.py": "HD505",
    "/asyncio/locks.py": "HD505",
    "/asyncio/streams.py": "HD507",
    "/asyncio/subprocess.py": "HD509",
    "/asyncio/tasks.py": "HD508",
}
"""Library file in which the task waits → the cause that has the same pattern without an event loop (Python 3.11)."""
_ENDING = {
    "put": ("get", "get_nowait"),
    "get": ("put", "put_nowait"),
    "join": ("task_done",),
    "wait": ("set", "notify", "notify_all"),
    "wait_for": ("notify", "notify_all"),
}
"""Method that waits → those of the same object that end the wait, of asyncio's queues and locks."""
_RESULT = ("set_result",)
"""By which a program ends the wait for a future that it made itself."""


@cause("HD505", "HD507", "HD508", "HD509", explains=OutsideWait, order=395)
def awaited_in_event_loop(case: Case, blame: Blame[OutsideWait]) -> Finding | None:
    """The culprit's event loop has nothing to run: another task, or something outside, was to go on first."""
    activity = case.activities[blame.culprits[0]]
    code = next((code for file, code in _CODES.items() if _library(activity).endswith(file)), "")
    if activity.kind != ActivityKind.EVENT_LOOP:
        return None
    if not code:
        return _suspended(case, blame, activity)
    why: Message = ["no task of ", Ranks(blame.culprits), "'s event loop is ready: what it awaits there does not come"]
    fix: Message = "give it a timeout (asyncio.wait_for), and see why what it waits for does not come"
    if code == "HD505":
        below = below_user(activity.stack)
        fix = _fix_of_tasks(case, activity.where, plain(below[-1].function) if below else "")
        why = joined(why, "a task that an exception has ended says nothing until somebody awaits it")
    return Finding(
        code,
        sentence(
            [Does(blame.culprits, "is", "are"), " ", doing(activity)],
            where_they_wait(case, others_of(case, blame)),
        ),
        why,
        fix,
    )


def _library(activity: Activity) -> str:
    below = below_user(activity.stack)
    return next((f.file for f in reversed(below) if any(f.file.endswith(file) for file in _CODES)), "")


def _suspended(case: Case, blame: Blame[OutsideWait], activity: Activity) -> Finding | None:
    """The same where no source shows the tasks: the program can be suspended in one place alone."""
    found = only_await(case.sources, activity.where) if activity.where is not None else None
    if (
        activity.where is not None
        and awaits_own_future(case.sources, activity.where)
        and case.sources.user_calls(*_RESULT)
    ):
        return Finding(
            "HD505",
            sentence(
                [
                    Does(blame.culprits, "is", "are"),
                    " ",
                    doing(activity),
                    " and waits there for the result of a future",
                ],
                where_they_wait(case, others_of(case, blame)),
            ),
            joined(
                ["no task of ", Ranks(blame.culprits), "'s event loop is ready: what would set that result does not"],
                set_by_hand(case.sources, activity.stack),
            ),
            "set the result, or an exception, on every way out of what answers, and give the wait a timeout "
            "(asyncio.wait_for)",
        )
    if found is None or found[1] not in _ENDING:
        return None
    where, method = found
    why: Message = ["what ", place(activity.where), " runs can be suspended at ", line_of(where), " alone"]
    ended = ending_condition(case.sources, (where,), method)
    return Finding(
        "HD505",
        sentence(
            [Does(blame.culprits, "is", "are"), " ", doing(activity), " and waits there for ", line_of(where)],
            where_they_wait(case, others_of(case, blame)),
        ),
        joined(why, "a task that an exception has ended says nothing until somebody awaits it", ended),
        _fix_of_tasks(case, where, method),
    )


def _fix_of_tasks(case: Case, where: Frame | None, method: str) -> Message:
    """'let no exception end the task at fetch.py:9 decode(), which takes from `rows` …', as far as names are known."""
    name = receiver_of(where, method, case.sources) if where is not None and method in _ENDING else ""
    other = places_of_methods(name, _ENDING[method], case.sources) if name else []
    other = [at for at in other if where is None or (at.file, at.line) != (where.file, where.line)]
    together = "run both in one asyncio.TaskGroup (or gather), which raises the exception of either"
    if len(other) != 1 or where is None:
        return ["see which task should end that wait, and whether it ended, failed or was never started; ", together]
    waits: Message = [f"`{name}.{method}()` at ", line_of(where)]
    return ["let no exception end the task that is to reach ", place(other[0]), ", which ", waits, " needs; ", together]
