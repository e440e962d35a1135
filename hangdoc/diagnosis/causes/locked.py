"""HD504 and HD505: locks that their holder cannot release, as the source and the stacks of both sides prove."""

from __future__ import annotations

from hangdoc.diagnosis.blame.interrupting import interrupting
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, OutsideWait
from hangdoc.diagnosis.state.deadlock import Deadlock
from hangdoc.model.kinds import GONE
from hangdoc.model.message import Joined, Message, joined, sentence

_FIX_ONESELF = (
    "let one of the two places expect that the lock is held already (a private method without the `with`), or make it "
    "an RLock"
)
_FIX_INTERRUPTED = "take no lock in what may run at any moment: set a flag in "
IN_ONE_ORDER = "take these locks in one order everywhere, or let the first go before taking the second"


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
        IN_ONE_ORDER,
    )
