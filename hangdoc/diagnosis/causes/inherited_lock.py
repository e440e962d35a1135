"""HD504: the rank that took a lock on a file has closed it, and a process that it forked meanwhile keeps it locked.

A lock of flock() belongs to what open() gave, which a forked child shares: it is free when the last of them closes it.
Example: `with self.lock: ⏎ if part.packed: ⏎ self.start_service()`, whose Process runs for as long as the training.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.blame.wait_cycle import WaitCycle
from hangdoc.diagnosis.causes.call_conditions import started_under
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.causes.wait_chain import title_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.state.process import descendants
from hangdoc.model.message import Condition, Does, Joined, joined, sentence
from hangdoc.model.process import OpenFile, Process


@dataclass(frozen=True, slots=True)
class _Inherited:
    """The children of the rank that may keep the file locked, and under what they are started."""

    file: OpenFile
    children: tuple[Process, ...]
    under: tuple[Condition, ...]


@cause("HD504", explains=WaitCycle, order=316)
def kept_by_a_child(case: Case, blame: Blame[WaitCycle]) -> Finding | None:
    """HD504: the holder by the kernel's list has no descriptor of the file any more, and a child of it lives."""
    holders, waiting = blame.found.lock_holders, blame.found.lock_waiters
    kept = _inherited(case, holders[0], waiting[0]) if len(holders) == 1 and waiting else None
    if kept is None:
        return None
    rank, (first, *more) = holders[0], kept.children
    child = f"its {title_of(first)}" if not more else f"one of its {len(kept.children)} child processes"
    stack = user_stack(first.last.main.frames) if first.last is not None and first.last.main is not None else ()
    runs = f" runs {plain(stack[-1].function)}(), and" if stack and not more else ""
    return Finding(
        "HD504",
        sentence(
            [
                [f"rank {rank} has closed the lock that ", Does(waiting, "waits", "wait")],
                [" for at ", place(case.activities[waiting[0]].where), f", and {child} keeps it locked"],
            ],
            where_they_wait(case, holders),
        ),
        joined(
            f"rank {rank} has locked {kept.file.target}, and has it open no more; {child}{runs} lives on",
            "a process that is forked while the lock is held shares it, and it is free when all have closed it",
            [Joined(kept.under, " and "), " decides whether that process is started"] if kept.under else "",
        ),
        "unlock it before it is closed (fcntl.flock(file, LOCK_UN) frees it for all who share it), or start that "
        "process outside of the lock, or with the spawn method",
        decided_at=kept.under[-1] if kept.under else None,
    )


def _inherited(case: Case, holder: int, waiter: int) -> _Inherited | None:
    """What keeps the file locked for which ``waiter`` waits; None where the holder has it open, or has no child."""
    mine, theirs = case.ranks[holder].process, case.ranks[waiter].process
    if mine is None or theirs is None:
        return None
    file = next((file for file in theirs.blocking_files if file.operation == "flock" and mine.pid in file.peers), None)
    children = [child for child in descendants(mine) if child.last is not None and child.last.state not in "ZX"]
    if file is None or file.target in mine.locked_files or not children:
        return None
    under: list[Condition] = []
    stack = case.activities[waiter].stack
    for child in children:
        own = user_stack(child.last.main.frames) if child.last is not None and child.last.main is not None else ()
        under += started_under(case.sources, own[-1], stack) if own else []
    return _Inherited(file, tuple(children), tuple(dict.fromkeys(under)))
