"""HD504 and HD505: locks that their holder cannot release, as the source and the stacks of both sides prove."""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.blame.interrupting import interrupting
from hangdoc.diagnosis.blame.wait_cycle import WaitCycle
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import cited, doing, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.causes.wait_chain import follow, state_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation, OutsideWait
from hangdoc.diagnosis.frames.stacks import same_function, user_stack
from hangdoc.diagnosis.source.locks import (
    condition_to_take,
    holders,
    polls_for_lock,
)
from hangdoc.diagnosis.source.ways_round import ways_round_letting_go
from hangdoc.diagnosis.state.activity import python_op
from hangdoc.diagnosis.state.deadlock import Deadlock
from hangdoc.diagnosis.state.process import descendants
from hangdoc.diagnosis.state.threads import Chain, End
from hangdoc.model.kinds import GONE, ActivityKind, WaitReason
from hangdoc.model.message import Condition, Does, Joined, Message, Place, Ranks, joined, sentence
from hangdoc.model.process import Frame
from hangdoc.model.wording import name_duration

_MOST_PROCESSES = 3
"""Child processes that a sentence names; chosen by hand."""
_FIX_ONESELF = (
    "let one of the two places expect that the lock is held already (a private method without the `with`), or make it "
    "an RLock"
)
_FIX_INTERRUPTED = "take no lock in what may run at any moment: set a flag in "
_FIX_ORDER = "take these locks in one order everywhere, or let the first go before taking the second"


@cause("HD504", explains=WaitCycle, order=320)
def held_over_a_wait(case: Case, blame: Blame[WaitCycle]) -> Finding | None:
    """HD504: the holder of a file lock waits for a rank that waits for the lock."""
    holders, waiting = blame.found.lock_holders, blame.found.lock_waiters
    if not holders or not waiting:
        return None
    first, held = case.activities[waiting[0]], case.activities[holders[0]]
    steps = [step.text for step in follow(case, waiting[0])]
    return Finding(
        "HD504",
        sentence(
            [
                [Does(holders, "waits", "wait"), " in ", doing(held), ", holding the lock that "],
                [Does(waiting, "waits", "wait"), " for at ", place(first.where)],
            ]
        ),
        joined([Does(waiting, "is", "are"), f" {first.text}"], *steps, "neither side can go on before the other"),
        "let the holder go before it waits for others: no barrier or other collective inside the lock",
    )


@dataclass(frozen=True, slots=True)
class _Over:
    """The thread ``holder`` holds the lock ``name``, taken ``since`` a line, over a call ``op`` ``at`` another one."""

    name: str
    holder: str
    since: Frame
    op: str
    at: Frame | None


def _over_call_of(chain: Chain, rank: int) -> _Over | None:
    """The lock that another thread of the rank holds over a call, as the stacks alone show it; None where the chain is
    another."""
    lock = chain.hops[0].lock
    if chain.end is not End.CALL or chain.last.rank != rank or lock is None or len(chain.hops) != 2:
        return None
    op = python_op(chain.last.thread.frames) or "collective"
    return _Over(lock.name, lock.thread.name, lock.frame, op, chain.last.where)


@cause("HD505", explains=(WaitCycle, OutsideWait), order=330)
def held_over_a_call(case: Case, blame: Blame[WaitCycle | OutsideWait]) -> Finding | None:
    """HD505: a thread holds a lock over a collective, and the rank's main thread waits for that lock."""
    rank = next((r for r in blame.culprits if r in case.held), None)
    if rank is None:
        return _not_issued_by(case, blame) if isinstance(blame.found, WaitCycle) else None
    held, where = case.held[rank], place(case.activities[rank].where)
    others = tuple(r for r in others_of(case, blame) if case.activities[r].kind not in GONE)
    return Finding(
        "HD505",
        sentence(
            [
                [f"rank {rank} waits for the lock `{held.name}` at ", where, f", which its thread {held.holder} "],
                [f"holds over the {held.call.op} at ", place(held.call.frame)],
            ],
            where_they_wait(case, others),
        ),
        [
            [f"`{held.name}` (taken at ", place(held.frame), ") is released only when the others join that "],
            [f"{held.call.op}, and they wait for what rank {rank} does after ", where],
        ],
        "never hold a lock over a collective: copy what it guards, let it go, then communicate",
    )


def _not_issued_by(case: Case, blame: Blame[Explanation]) -> Finding | None:
    """HD505 of ranks that have not issued the call in which a thread of others waits, holding the lock."""
    over = {r: _Over(h.name, h.holder, h.frame, h.call.op, h.call.frame) for r, h in case.held.items()}
    over |= {rank: found for rank, chain in case.chains.items() if (found := _over_call_of(chain, rank)) is not None}
    waiting = tuple(sorted(over))
    if not waiting or any(case.graph.on(r) != set(blame.culprits) for r in waiting):
        return None
    first, culprits = over[waiting[0]], blame.culprits
    there = place(case.activities[waiting[0]].where)
    other, condition = _held_there(case, culprits[0], first.at)
    return Finding(
        "HD505",
        sentence(
            [
                [Does(culprits, "has", "have"), f" not issued the {first.op} at ", place(first.at)],
                [f", which thread {first.holder} of ", Ranks(waiting), " waits in"],
            ],
            where_they_wait(case, culprits),
        ),
        joined(
            [
                [f"that thread holds the lock `{first.name}` over it (taken at ", place(first.since), "), which "],
                [Does(waiting, "wants", "want"), " at ", there, " before going on to what "],
                [Does(culprits, "waits", "wait"), " for"],
            ],
            other,
        ),
        f"let every rank issue the {first.op}, or none; and never hold a lock over a collective: copy what it guards, "
        "let it go, then communicate",
        decided_at=condition,
    )


def _held_there(case: Case, rank: int, call: Frame | None) -> tuple[Message, Condition | None]:
    """(why a thread of the rank that would issue ``call`` does not: its main thread holds the lock that it wants; the
    condition under which that takes the lock); ('', None) where no thread of the rank waits so.

    Example: `with self.guard if self.rank == 0 else nullcontext():` around the all_reduce of rank 0's main thread.
    """
    process = case.ranks[rank].process
    main = process.last.main if process is not None and process.last is not None else None
    if process is None or process.last is None or main is None:
        return "", None
    for thread in process.last.threads[1:]:
        where = next(iter(user_stack(thread.frames)), None)
        of_call = call is not None and where is not None and same_function(where, call)
        mine = next((h for h in holders(process, where, case.sources) if h.thread is main), None) if of_call else None
        if mine is not None:
            condition = condition_to_take(mine.frame, case.sources)
            taken: Message = [" under ", condition] if condition is not None else ""
            waits = [f"thread {thread.name} of rank {rank} waits at ", place(where), " for that lock, which its main "]
            return [*waits, "thread holds since ", place(mine.frame), taken], condition
    return "", None


@cause("HD505", explains=OutsideWait, order=340)
def deadlocked_in_itself(case: Case, blame: Blame[OutsideWait]) -> Finding | None:
    """HD505: the threads of a rank wait for each other, or its main thread for itself."""
    rank = next((r for r in blame.culprits if r in case.deadlocks), None)
    if rank is None:
        return None
    found, where = case.deadlocks[rank], case.activities[rank].where
    others = tuple(r for r in others_of(case, blame) if case.activities[r].kind not in GONE)
    waiting = where_they_wait(case, others) or "the others have ended"
    if found.pool:
        frames = sorted(found.pool, key=lambda frame: (frame.file, str(frame.line)))
        lines = Joined(list(dict.fromkeys(place(frame) for frame in frames)), ", ")
        count = len(found.pool)
        every = f"all {count} workers" if count > 1 else "the one worker"
        return Finding(
            "HD505",
            sentence(
                [f"rank {rank} waits for a future at ", place(where), ", and no worker is left to run it"], waiting
            ),
            [
                [f"{every} of its thread pool {'wait' if count > 1 else 'waits'} for futures too, at ", lines],
                ": a task that waits for a task of its own pool keeps the worker that should run it",
            ],
            "never wait for a pool's task inside a task of the same pool: use a second pool, or let the caller wait",
        )
    if found.circle:
        return _circle(case, rank, found, waiting)
    return None


def _circle(case: Case, rank: int, found: Deadlock, waiting: Message) -> Finding:
    process = case.ranks[rank].process
    main = process.last.main if process is not None and process.last is not None else None
    (where, holder), *further = found.circle
    if holder.thread is main:
        handler = interrupting(case, main.frames)
        moment = (
            "runs at an arbitrary moment (a finalizer, a signal handler or a callback), here while the lock was held"
        )
        return Finding(
            "HD505",
            sentence(
                [
                    [f"rank {rank} waits at ", place(where), f" for the lock `{holder.name}`, "],
                    ["which it holds itself since ", place(holder.frame)],
                ],
                waiting,
            ),
            joined(
                [
                    [f"`{holder.name}` is taken at ", place(holder.frame), " and, before it is let go, once more at "],
                    [place(where), " by the same thread"],
                ],
                [place(handler), " ", moment] if handler is not None else "",
            ),
            _FIX_ONESELF if handler is None else [_FIX_INTERRUPTED, place(handler), ", and act on it in the loop"],
        )
    known = {main.tid: "the main thread"} if main is not None else {}
    steps: list[Message] = []
    waiter = holder.thread
    for at, held in further:
        who, whom = (known.get(each.tid, f"thread {each.name}") for each in (waiter, held.thread))
        waits = [f"{who} waits at ", place(at), f" for `{held.name}`"]
        steps.append([waits, f", which {whom} holds since ", place(held.frame)])
        waiter = held.thread
    return Finding(
        "HD505",
        sentence(
            [
                [f"rank {rank} waits at ", place(where), f" for the lock `{holder.name}`, which its thread "],
                [f"{holder.thread.name} holds since ", place(holder.frame), " and cannot let go"],
            ],
            waiting,
        ),
        [Joined(steps), ": neither can go on before the other"],
        _FIX_ORDER,
    )


@cause("HD504", explains=OutsideWait, order=350)
def shared_lock(case: Case, blame: Blame[OutsideWait]) -> Finding | None:
    """HD504: a lock between processes (multiprocessing's), whose holder no source shows."""
    rank = next((r for r in blame.culprits if case.activities[r].reason == WaitReason.SHARED_LOCK), None)
    if rank is None:
        return None
    process, where = case.ranks[rank].process, case.activities[rank].where
    others = tuple(r for r in others_of(case, blame) if case.activities[r].kind not in GONE)
    below = [] if process is None else [child for child in descendants(process) if child.last is not None]
    states: list[Message] = [[f"process {child.pid} ", state_of(child)[1]] for child in below[:_MOST_PROCESSES]]
    same = tuple(r for r in blame.culprits if case.activities[r].reason == WaitReason.SHARED_LOCK)
    why = "nobody has let go of it"
    ways = ways_round_letting_go(where, case.sources) if where is not None else []
    out: Message = ""
    if where is not None and len(ways) == 1:
        ((line, guard),) = ways
        out = [cited(guard, where.file), " leads out at ", Place(where.file, line), " before it is let go"]
    return Finding(
        "HD504",
        sentence(
            [Does(same, "waits", "wait"), " at ", _at(where), " for a lock or semaphore that processes share"],
            where_they_wait(case, others) or "the others have ended",
        ),
        joined(why, out, [f"of rank {rank}'s own processes, ", Joined(states)] if states else ""),
        "take such locks with `with`, so that they are let go on every way out, and never end a process that may hold "
        "one (terminate(), kill); give the wait a timeout",
    )


# Its branches choose words: for the file's age, its holders, and who made it.
@cause("HD504", explains=OutsideWait, order=355)
def left_behind(case: Case, blame: Blame[OutsideWait]) -> Finding | None:
    """HD504: a rank tries again and again to take a lock file that is there, and that no rank holds.

    Example: `os.open(path, os.O_CREAT | os.O_EXCL)` in a loop, and a job that was killed yesterday left the file.
    """
    rank = next((r for r in blame.culprits if _polls_for_lock(case, r)), None)
    process = case.ranks[rank].process if rank is not None else None
    if rank is None or process is None or not process.named_locks:
        return None
    file, where = process.named_locks[0], case.activities[rank].where
    same = tuple(r for r in blame.culprits if _polls_for_lock(case, r))
    others = tuple(r for r in others_of(case, blame) if case.activities[r].kind not in GONE)
    age = case.job.taken - file.changed
    made = (
        f"{file.target} was last changed {name_duration(age)} before this look" if age > 1 else f"{file.target} is new"
    )
    before = ", before the job started" if process.started and file.changed < process.started else ""
    holders = f"process {', '.join(map(str, file.peers))} holds a lock on it"
    nobody = "no rank is in the code that it guards, and no process holds a lock on it"
    return Finding(
        "HD504",
        sentence(
            [Does(same, "waits", "wait"), f" for the lock file {file.target} at ", _at(where)],
            where_they_wait(case, others) if others else "",
        ),
        joined(made + before, holders if file.peers else nobody),
        f"see what process {file.peers[0]} does: it has to let the lock go"
        if file.peers
        else f"remove {file.target} if no other program uses it, and lock with flock (filelock.FileLock), which the "
        "kernel lets go when its owner ends",
    )


def _polls_for_lock(case: Case, rank: int) -> bool:
    activity = case.activities[rank]
    return activity.kind == ActivityKind.SLEEPING and polls_for_lock(activity.stack, case.sources)


def _at(where: Frame | None) -> Message:
    return place(where) or "a line that could not be seen"
