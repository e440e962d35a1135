"""HD404, HD405, HD5xx, HD701: a rank is busy, or blocked on something that is no rank; the others wait, correctly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangdoc.diagnosis.blame.asking import cannot_be_answered, standard_input
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.forked_lock import is_forked_with_lock
from hangdoc.diagnosis.causes.outside import (
    ANSWERED,
    BETWEEN_PROCESSES,
    DESTROY,
    EACH_OTHER,
    ENDED_CHILD,
    EXIT_HOOK,
    FAILED,
    LEFT_ALONE,
    LOGGER,
    LOST_TASK,
    NEVER_STOPPED,
    OUTSIDE,
    QUEUE,
    SIGNAL,
    TASK,
    UNANSWERABLE,
    UNREAD,
    OutsideWords,
)
from hangdoc.diagnosis.causes.phrases import at, cited, line_of, place, where_they_wait
from hangdoc.diagnosis.causes.polled import made_elsewhere, named_by_itself, tries_to_lock
from hangdoc.diagnosis.causes.queues import filled_by_requests, fix_for_child, queue_fix
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.causes.thread_chain import ENDS, own_clauses, state, thread_name
from hangdoc.diagnosis.causes.wait_chain import Fault, Step, follow, is_pool_idle, state_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, OutsideWait
from hangdoc.diagnosis.frames.landmarks import below_user
from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.diagnosis.frames.stacks import is_in, user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS, Guard, guards, split_at_loop
from hangdoc.diagnosis.state.nobody_left import never_stopped, unread_child
from hangdoc.diagnosis.state.process import is_pasted
from hangdoc.diagnosis.state.threads import Chain, End, thread_wait_of
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import COMMUNICATING, GONE, ActivityKind, WaitReason
from hangdoc.model.message import Does, Joined, Message, Ranks, joined, sentence
from hangdoc.model.process import Frame

_ENDED = replace(
    LEFT_ALONE,
    why="no other thread of the process that runs the program's code is left to end that wait",
)
"""The same where the source shows what can have ended that thread."""


_BY_REASON = {WaitReason.QUEUE: QUEUE, WaitReason.TASK: TASK, WaitReason.SIGNAL: SIGNAL}
"""What the reason of a wait tells beyond its kind."""


_FIXES = {
    Fault.OWN_PIPE: "let the rank do its part before it waits for the child: close the child's stdin, or read its "
    "output (communicate() does both)",
    Fault.FORKED_LOCK: "start such processes before any thread, or with the spawn or forkserver method: a forked child "
    "has the locks of its parent's threads, and not the threads",
}
"""What cures a chain with such a step."""


_NAMED_EVEN_IF_MOVING = frozenset(
    {ActivityKind.COMPILING, ActivityKind.WAITING_FOR_CHILD, ActivityKind.WAITING_FOR_WORKER}
)


@cause("HD501", explains=OutsideWait, order=360)
def straggler(case: Case, blame: Blame[OutsideWait]) -> Finding | None:
    """HD501: computing or doing I/O, and moving."""
    slow = tuple(r for r in blame.culprits if case.activities[r].moving)
    if not slow or case.activities[slow[0]].kind in _NAMED_EVEN_IF_MOVING:
        return None
    first = case.activities[slow[0]]
    kind = ActivityKind.COMPUTING if first.kind == ActivityKind.COMPUTING else f"busy ({first.text})"
    return Finding(
        "HD501",
        sentence([Does(slow, "is", "are"), f" still {kind}", at(first.where)], _waiting(case, blame)),
        [_what_changes(case, first), ", so it works"],
        "give every rank an equal share of the work, or let the others go on without waiting",
    )


def _what_changes(case: Case, activity: Activity) -> Message:
    """'its CPU time, I/O or stack changes'; of one that sleeps, the loop that it goes round."""
    loop = case.going_round(activity)
    if loop is None:
        return "its CPU time, I/O or stack changes"
    at = cited(loop.loop, loop.frame.file)
    return [at, f" goes on ({loop.name} = {loop.then}, and {loop.now} a moment later)"]


@cause("HD508", explains=OutsideWait, order=370)
def sleeping(case: Case, blame: Blame[OutsideWait]) -> Finding | None:
    """HD508: time.sleep, or polling for a condition that never comes."""
    asleep = tuple(r for r in blame.culprits if case.activities[r].kind == ActivityKind.SLEEPING)
    if not asleep or tries_to_lock(case.program, case.activities[asleep[0]]):
        return None
    first = case.activities[asleep[0]]
    process = case.ranks[asleep[0]].process
    thread = process.last.main if process is not None and process.last is not None else None
    wakes = thread.wakes_in if thread else None
    line = case.sources.line(first.where.file, first.where.line) if first.where else None
    sleeps: Message = [f"`{line}` (", place(first.where), ")"] if line else ["it sleeps", at(first.where)]
    ends_by_itself = wakes is not None and wakes >= 1
    made, deciding = made_elsewhere(case.sources, first.stack) or (None, [])
    named = named_by_itself(case, asleep)
    ends: Message = ["whether that is made, at ", line_of(made), ", depends on ", Joined(deciding, " and ")]
    return Finding(
        "HD508",
        sentence([Does(asleep, "sleeps or polls", "sleep or poll"), at(first.where)], _waiting(case, blame)),
        joined(
            [sleeps, f" wakes in {wakes:.0f} s" if ends_by_itself else ""],
            _polls(case, first, "sleeps" if ends_by_itself else "polls"),
            ends if deciding else "",
            ["what it looks for is named by ", named, ", which every rank takes for itself"] if named else "",
        ),
        _fix_sleep(ends_by_itself, _loop_around(case, first)),
        decided_at=deciding[-1] if deciding else named,
    )


def _fix_sleep(ends_by_itself: bool, around: Sequence[Guard]) -> str:
    if ends_by_itself:
        return "shorten that sleep, if it is not meant"
    has_deadline = bool(around) and pattern("asks_clock").search(around[0].condition)
    return "" if has_deadline else "bound the wait with a deadline and an error"


def _loop_around(case: Case, activity: Activity) -> Sequence[Guard]:
    """The innermost loop around the line where it waits, and the guards between them; nothing without one."""
    where = activity.where
    tree = case.sources.function(where.file, where.line) if where is not None else None
    return split_at_loop(guards(tree, where.line))[1] if tree is not None and where is not None else ()


def _polls(case: Case, activity: Activity, does: str = "polls") -> Message:
    """The loop around the sleep, or the wait for a connection, and the conditions between them; '' where there is no
    loop in the function."""
    where, around = activity.where, _loop_around(case, activity)
    if not around or where is None:
        return ""
    loop, *inner = around
    by = [_quoted(where, g) for g in inner if g.kind in (*CONDITIONS, "try") and g.condition != "try:"]
    under: Message = [", under ", Joined(by[-2:], " and ")] if by else ""
    return [f"it {does} in ", _quoted(where, loop), ", which has not ended", under]


def _quoted(where: Frame, guard: Guard) -> Message:
    return [cited(guard, where.file), " (not taken)" if guard.kind == "return" else ""]


@cause(
    "HD404",
    "HD405",
    "HD502",
    "HD503",
    "HD504",
    "HD505",
    "HD506",
    "HD507",
    "HD508",
    "HD509",
    "HD701",
    "HD702",
    explains=OutsideWait,
    order=390,
)
def blocked_outside(case: Case, blame: Blame[OutsideWait]) -> Finding | None:
    """``OUTSIDE``: what the rank is blocked on has a name, and is followed to its end."""
    if not blame.culprits:
        return None
    rank = blame.culprits[0]
    activity = case.activities[rank]
    known = _row(case, rank)
    if known is None or activity.reason == WaitReason.SHARED_LOCK:
        return None
    steps = [] if known is LOST_TASK else follow(case, rank)
    known = _seen_closer(case, rank, known, steps)
    same = tuple(r for r in blame.culprits if case.activities[r].kind == activity.kind)
    chain: list[Message] = [step.text for step in steps]
    threads = case.chains.get(rank)
    if threads is not None and known.code != "HD701":
        known, chain = _ended_by(threads, rank, known, chain)
    if known is LOST_TASK:
        chain = ["all of its workers wait for work"]
    mended: Message = next((fix for fault, fix in _FIXES.items() if any(step.fault is fault for step in steps)), "")
    child = steps[-1].process if steps else None
    if known in (LOGGER, LEFT_ALONE):
        mended = queue_fix(case, rank)
    if known is LEFT_ALONE and (asked := filled_by_requests(case, rank)):
        known = replace(_ENDED, why=f"only calls of {asked[0]}() by other ranks fill it, and it is empty")
    if known is OUTSIDE[ActivityKind.FILE_LOCK] and (holders := _hold_file_locks(case, rank)):
        mended = ["if it waits for the lock that ", Does(holders, "holds", "hold")]
        mended = [mended, ": let go of that lock before any call that waits for other ranks"]
    if known.code == "HD507" and is_forked_with_lock(case, rank):
        known = replace(known, code="HD505", why="its child waits for that lock for good")
    why: Message = known.why
    if child is not None and not mended and known.code in ("HD503", "HD509"):
        waits, mended = fix_for_child(case, child)
        why = joined(why, waits)
    process = case.ranks[rank].process
    if process is not None and any(file.operation in names("accept", of="kernel") for file in process.blocking_files):
        why = joined(why, _polls(case, activity, "takes connections"))
    return Finding(
        known.code,
        sentence(*_what_it_does(case, rank, same, known, chain), _waiting(case, blame)),
        why,
        mended or known.fix,
    )


def _row(case: Case, rank: int) -> OutsideWords | None:
    """The sentences for what the rank itself does; None for a wait without a name."""
    activity, process = case.activities[rank], case.ranks[rank].process
    known = DESTROY if activity.reason == WaitReason.DESTROY_GROUP else OUTSIDE.get(activity.kind)
    known = _BY_REASON.get(activity.reason, known) if activity.reason is not None else known
    if cannot_be_answered(case, rank):
        known = replace(UNANSWERABLE, why=UNANSWERABLE.why.format(input=standard_input(case, rank)))
    if known is not None and _at_exit(case, rank):
        known = OUTSIDE[ActivityKind.SHUTTING_DOWN] if activity.kind is ActivityKind.SHUTTING_DOWN else EXIT_HOOK
    if known is None or (activity.kind == ActivityKind.LOCK and not _is_lock(case, rank)):
        return None
    idle = process is not None and activity.reason == WaitReason.POOL and is_pool_idle(process)
    return LOST_TASK if idle else known


def _ended_by(
    threads: Chain, rank: int, known: OutsideWords, chain: list[Message]
) -> tuple[OutsideWords, list[Message]]:
    """The sentences and clauses for a wait that leads from thread to thread: what the last one does explains it."""
    if threads.end is End.REQUEST:
        asked = thread_name(threads.last)
        if thread_wait_of(threads.last).kind != ActivityKind.IO:
            return known, [[asked, " runs that call and is ", state(threads.last)]]
        return ANSWERED, [["at the other end, ", asked, " waits for data as well, at ", place(threads.last.where)]]
    kind = thread_wait_of(threads.last).kind
    if threads.end is not End.OUTSIDE or threads.last.rank != rank or kind not in ENDS:
        return known, chain
    lock = threads.hops[0].lock
    doing = f"waiting for the lock `{lock.name}`" if lock is not None else "{text}"
    return replace(OUTSIDE.get(kind, known), doing=doing), own_clauses(threads)


def _hold_file_locks(case: Case, rank: int) -> tuple[int, ...]:
    """The other ranks that hold a lock of a file while they wait for ranks."""
    others = {r: s.process for r, s in case.ranks.items() if r != rank and s.process is not None}
    return tuple(r for r, p in others.items() if p.locked_files and case.activities[r].kind in COMMUNICATING)


def _seen_closer(case: Case, rank: int, known: OutsideWords, steps: list[Step]) -> OutsideWords:
    """``known``, or the sentences that fit better after what the wait leads to, and how the rank's program ended."""
    if known is OUTSIDE[ActivityKind.LOCK]:
        if any(is_in(frame, "log_queue_file", "puts_record") for frame in case.activities[rank].stack):
            return LOGGER
        if any(frame.file.endswith(names("process_lock_file")) for frame in below_user(case.activities[rank].stack)):
            return BETWEEN_PROCESSES
        if not steps:
            return LEFT_ALONE if _all_threads_seen(case, rank) else known
        return EACH_OTHER if rank in case.deadlocks else known
    if rank in case.deadlocks and known is OUTSIDE[ActivityKind.WAITING_FOR_CHILD]:
        process = case.ranks[rank].process
        return UNREAD if process is not None and unread_child(process) is not None else known
    if known is OUTSIDE[ActivityKind.WAITING_FOR_CHILD] and any(
        step.process is not None and state_of(step.process)[0] is ActivityKind.ZOMBIE for step in steps
    ):
        return ENDED_CHILD
    journal = case.ranks[rank].journal
    failed = journal is not None and bool(journal.failure)
    if known not in (OUTSIDE[ActivityKind.SHUTTING_DOWN], EXIT_HOOK):
        return known
    process = case.ranks[rank].process
    if failed or process is None:
        return FAILED if failed else known
    return NEVER_STOPPED if never_stopped(process, case.sources) is not None else known


def _all_threads_seen(case: Case, rank: int) -> bool:
    """False where a person may have pasted the main thread alone."""
    process = case.ranks[rank].process
    return process is None or process.last is None or not is_pasted(process) or len(process.last.threads) > 1


def _what_it_does(
    case: Case, rank: int, same: tuple[int, ...], known: OutsideWords, chain: list[Message]
) -> list[Message]:
    """The clauses on the culprits, and on what their wait leads to.

    Examples: 'rank 1 is waiting for a child process at train.py:9 main()', 'child process 4711 (sort) is …'; 'rank 1
    finished but cannot exit: its thread `uploader` is waiting on a queue (train.py:31)'.
    """
    activity = case.activities[rank]
    doing: Message = [known.doing.format(text=activity.text), at(activity.where)]
    if known.code != "HD701":
        return [[Does(same, "is", "are"), " ", doing], *chain]
    how: Message = _how_it_failed(case, rank) if known is FAILED else "finished"
    waits: Message = joined(*chain) if chain else ["it is " if len(same) == 1 else "they are ", doing]
    return [[Ranks(same), " ", how, " but cannot exit: ", waits]]


def _how_it_failed(case: Case, rank: int) -> Message:
    """'failed with ValueError at train.py:9 load()'."""
    journal = case.ranks[rank].journal
    if journal is None:
        return "failed"
    return [f"failed with {journal.failure}", at(next(iter(user_stack(journal.failed_at)), None))]


def _at_exit(case: Case, rank: int) -> bool:
    """True if the interpreter runs an exit hook: its stack then does not begin in a module's body. In a child of
    multiprocessing it never does, and the hooks have a function of their own."""
    process = case.ranks[rank].process
    main = process.last.main if process is not None and process.last is not None else None
    if main is None or not main.frames:
        return False
    if any(
        frame.file.endswith("/multiprocessing/util.py") for frame in main.frames if frame.function in names("exit_hook")
    ):
        return True
    outermost = main.frames[-1]
    if outermost.function.endswith("_bootstrap"):
        return False
    return not outermost.function.startswith("<") and not outermost.file.startswith("<frozen runpy")


def _is_lock(case: Case, rank: int) -> bool:
    """True if a Python lock, queue, future or join is certain: by its library frames, or by the source of the line."""
    activity = case.activities[rank]
    if activity.reason != WaitReason.UNKNOWN:
        return True
    line = case.sources.line(activity.where.file, activity.where.line) if activity.where else None
    return line is not None and any(word in line.lower() for word in names("lock_word"))


def _waiting(case: Case, blame: Blame[OutsideWait]) -> Message:
    """'rank 1 waits in barrier at train.py:9 main()'; '' where all ranks are to blame alike."""
    others = others_of(case, blame)
    living = tuple(r for r in others if case.activities[r].kind not in GONE)
    return (where_they_wait(case, living) or "the others have ended") if others else ""
