"""HD5xx of a rank whose event loop (asyncio) has nothing to run: by what the awaiting task waits for."""

from __future__ import annotations

from hangdoc.diagnosis.causes.ending_calls import ending_condition, set_by_hand
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import at, doing, line_of, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, OutsideWait
from hangdoc.diagnosis.frames.landmarks import below_user, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import is_in, user_stack
from hangdoc.diagnosis.source.awaits import awaits_own_future, only_await
from hangdoc.diagnosis.source.calls_between import places_of_methods, receiver_of
from hangdoc.diagnosis.source.kept_tasks import awaited_futures, kept_task
from hangdoc.diagnosis.state.process import at_rest
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.message import Does, Joined, Message, Ranks, Verb, joined, sentence
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
_NO_TIMER = ("None", "-1")
"""The time that an event loop without timers waits for at most (Python 3.11)."""
_RESULT = ("set_result",)
"""By which a program ends the wait for a future that it made itself."""


@cause("HD103", "HD505", "HD507", "HD508", "HD509", explains=OutsideWait, order=395)
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
    died = _task_that_died(case, blame, activity)
    if died is not None:
        return died
    made = found[0] if found is not None and not found[1] else activity.where
    if made is not None and awaits_own_future(case.sources, made) and case.sources.user_calls(*_RESULT):
        there: Message = " and waits there for the result of a future"
        if made is not activity.where:
            there = [there, " at ", place(made)]
        return Finding(
            "HD505",
            sentence(
                [Does(blame.culprits, "is", "are"), " ", doing(activity), there],
                where_they_wait(case, others_of(case, blame)),
            ),
            joined(
                ["no task of ", Ranks(blame.culprits), "'s event loop is ready: what would set that result does not"],
                set_by_hand(case.sources, activity.stack),
            ),
            "set the result, or an exception, on every way out of what answers, from a thread by "
            "loop.call_soon_threadsafe(), and give the wait a timeout (asyncio.wait_for)",
        )
    if found is None or found[1] not in _ENDING:
        return _kept_by_threads(case, blame, activity) or _kept_inside(case, blame, activity)
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


def _kept_by_threads(case: Case, blame: Blame[OutsideWait], activity: Activity) -> Finding | None:
    """HD505 of a loop that waits for its pool of threads, all of which wait for another thread; None where one of them
    may go on.

    Example: four workers are in `self.raw.get()`, and what would fill these queues is a task of the same pool.
    """
    process = case.ranks[blame.culprits[0]].process
    if process is None or process.last is None:
        return None
    workers = [t for t in process.last.threads if any(is_in(f, "pool_worker_file", "pool_worker") for f in t.frames)]
    places = [own[0] for t in workers if (own := user_stack(t.frames))]
    waits = [t for t in workers if user_stack(t.frames) and at_rest(process, t, t.frames).kind == ActivityKind.LOCK]
    if not places or len(waits) < len(workers):
        return None
    ended = ending_condition(case.sources, waits[0].frames)
    lines = Joined(list(dict.fromkeys(map(line_of, places))), " and ")
    count = f"all {len(waits)} threads" if len(waits) > 1 else "the only thread"
    return Finding(
        "HD505",
        sentence(
            [Does(blame.culprits, "is", "are"), " ", doing(activity)],
            [f"{count} of its pool {'wait' if len(waits) > 1 else 'waits'} for another one, at ", lines],
            where_they_wait(case, others_of(case, blame)),
        ),
        joined("what a task of the same pool was to bring them, no thread is left to run", ended),
        "give what waits and what ends the wait pools of their own, or more threads than can wait at once",
    )


def _kept_inside(case: Case, blame: Blame[OutsideWait], activity: Activity) -> Finding | None:
    """HD505 of a program whose event loop has no sockets or children of its own to wait for: only another task, or a
    thread, ends that wait."""
    known = activity.where is not None and case.sources.function(activity.where.file, activity.where.line) is not None
    if not known or case.sources.user_calls(*names("opens_stream")):
        return None
    why: Message = ["no task of ", Ranks(blame.culprits), "'s event loop is ready: what it awaits there does not come"]
    return Finding(
        "HD505",
        sentence(
            [Does(blame.culprits, "is", "are"), " ", doing(activity)], where_they_wait(case, others_of(case, blame))
        ),
        joined(why, "a task that an exception has ended says nothing until somebody awaits it"),
        "see which task or thread should have ended that wait, and what it does",
    )


def _task_that_died(case: Case, blame: Blame[OutsideWait], activity: Activity) -> Finding | None:
    """HD103 of a task that was to set the awaited result, and to make the call in which the others wait, and that an
    exception can end unheard: nobody awaits it. By the source, where that shows that nothing else is awaited; then
    no timer may run, which would set off the loop again."""
    where = activity.where
    timed = any(each.name == "timeout" and each.value not in _NO_TIMER for f in activity.stack for each in f.locals)
    futures = awaited_futures(case.sources, where) if where is not None and not timed else []
    if where is not None and not futures and awaits_own_future(case.sources, where):
        futures = [where]
    task = kept_task(case.sources) if len(futures) == 1 else None
    others = others_of(case, blame)
    inside = {plain(f.function) for rank in others for f in below_user(case.activities[rank].stack)}
    if task is None or task.calls.isdisjoint(inside):
        return None
    same = where is not None and (where.file, where.line) == (futures[0].file, futures[0].line)
    there: Message = " there" if same else at(futures[0])
    return Finding(
        "HD103",
        sentence(
            [Does(blame.culprits, "is", "are"), " ", doing(activity)],
            [
                ["the result that it awaits", there, " is set in a task that nobody awaits, at "],
                place(task.ends_at),
            ],
            where_they_wait(case, others),
        ),
        joined(
            [
                ["no task of ", Ranks(blame.culprits), "'s event loop is ready, also not the one started at "],
                [line_of(task.started_at), ", which was to make the call in which ", Ranks(others), " "],
                Verb(others, "waits", "wait"),
            ],
            "an exception that ends a task stays in it until somebody awaits it",
        ),
        [
            ["let no exception end the task started at ", line_of(task.started_at), " unheard: await it beside those "],
            "who wait for its results (asyncio.TaskGroup, or gather), or give them the exception (`set_exception`)",
        ],
        "the exception that ended the task was not seen",
    )


def _fix_of_tasks(case: Case, where: Frame | None, method: str) -> Message:
    """'let no exception end the task at fetch.py:9 decode(), which takes from `rows` …', as far as names are known."""
    name = receiver_of(where, method, case.sources) if where is not None and method in _ENDING else ""
    other = places_of_methods(name, _ENDING[method], case.sources) if name else []
    other = [at for at in other if where is None or (at.file, at.line) != (where.file, where.line)]
    together = "run both in one asyncio.TaskGroup (or gather), which raises the exception of either"
    if len(other) != 1 or where is None:
        return ["see which task should end that wait; ", together]
    waits: Message = [f"`{name}.{method}()` at ", line_of(where)]
    return ["let no exception end the task that is to reach ", place(other[0]), ", which ", waits, " needs; ", together]
