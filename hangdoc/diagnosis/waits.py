"""Who waits for whom? A waiting rank needs *every* rank it waits for, so a rank can go on only when all of those
can; what is left over is stuck for good."""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.activity import GONE
from hangdoc.diagnosis.sequences import GroupHistory, Token
from hangdoc.model.diagnosis import Activity, Wait
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

IMMOVABLE = GONE | {"stopped", "debugger"}


@dataclass(frozen=True, slots=True)
class Graph:
    """The wait-for graph of the job's ranks."""

    waits: tuple[Wait, ...]
    stuck: frozenset[int]
    """Ranks that no future step of the others can set free."""
    roots: frozenset[int]
    """Ranks that others wait for, directly or not, and that wait for no rank themselves."""

    def on(self, rank: int) -> frozenset[int]:
        """The ranks that ``rank`` waits for."""
        return frozenset(r for w in self.waits if w.waiter == rank for r in w.on)


def build(job: JobSnapshot, activities: dict[int, Activity], groups: list[GroupHistory]) -> Graph:
    """Join activities and journals into the graph."""
    by_key = {g.key: g for g in groups}
    everyone = frozenset(activities)
    waits: list[Wait] = []
    snapshots = {r.rank: r for r in job.ranks}
    owners = _owners(job)
    for rank, activity in activities.items():
        wait = _wait_of(rank, activity, activities, by_key, everyone, snapshots, owners)
        if wait is not None and wait.on:
            waits.append(wait)
    return _solve(tuple(waits), activities)


def _wait_of(
    rank: int,
    activity: Activity,
    activities: dict[int, Activity],
    groups: dict[tuple[str, tuple[int, ...]], GroupHistory],
    everyone: frozenset[int],
    snapshots: dict[int, RankSnapshot],
    owners: dict[int, int],
) -> Wait | None:
    if activity.kind == "in-collective":
        history = groups.get((activity.group or "", activity.members))
        if history is not None and activity.sequence is not None:
            return _collective_wait(rank, activity, activities, history)
        # Stacks alone do not tell groups apart: as long as anybody is outside of a collective, wait for those.
        outside = [r for r, a in activities.items() if r != rank and a.kind != "in-collective"]
        others = outside or [r for r, a in activities.items() if r != rank and not _same_place(a, activity)]
        return Wait(rank, tuple(sorted(others)), f"has not entered {activity.op or activity.text}", "stack")
    if activity.kind in ("send", "recv") and activity.peer is not None and activity.peer in everyone:
        return Wait(rank, (activity.peer,), activity.text, "journal" if snapshots[rank].journal else "stack")
    if activity.kind == "store-wait":
        return Wait(rank, _not_joined(rank, activities, snapshots), activity.text, "stack")
    if activity.kind in ("file-lock", "pipe", "io"):
        process = snapshots[rank].process
        held_by = {owners[p] for f in (process.blocking_files if process else ()) for p in f.peers if p in owners}
        held_by.discard(rank)
        return Wait(rank, tuple(sorted(held_by)), activity.text, "process")
    return None


def _collective_wait(
    rank: int, activity: Activity, activities: dict[int, Activity], history: GroupHistory
) -> Wait | None:
    sequence = activity.sequence or 0
    behind = [r for r in history.members if r != rank and not _has_issued(r, sequence, activity, activities, history)]
    call = f"{activity.op} {history.label} #{sequence}"
    if behind:
        return Wait(rank, tuple(behind), f"has not issued {call}", "journal")
    mine = history.at(rank, sequence)
    odd = [r for r in history.members if r != rank and _mismatch(history, mine, history.at(r, sequence))]
    return Wait(rank, tuple(odd), f"issued something else as {call}", "journal") if odd else None


def _has_issued(
    other: int, sequence: int, mine: Activity, activities: dict[int, Activity], history: GroupHistory
) -> bool:
    if other in history.blind:
        activity = activities.get(other)
        return activity is not None and _same_place(activity, mine)
    return history.issued(other) >= sequence


def _same_place(a: Activity, b: Activity) -> bool:
    """Without a journal: two ranks at the same user line, or in the same operation, have met."""
    if a.kind != "in-collective":
        return False
    if a.where is not None and b.where is not None:
        return (a.where.file, a.where.line) == (b.where.file, b.where.line)
    return a.text == b.text


def _mismatch(history: GroupHistory, mine: Token | None, other: Token | None) -> bool:
    if mine is None or other is None or not (mine.pending and other.pending):
        return False
    if mine.op != other.op or mine.sizes != other.sizes:
        return True
    return mine.sizes is not None and mine.dtypes != other.dtypes


def _not_joined(rank: int, activities: dict[int, Activity], snapshots: dict[int, RankSnapshot]) -> tuple[int, ...]:
    """Ranks that are not (yet) where this one waits on the store."""

    def groups_of(r: int) -> int:
        journal = snapshots[r].journal
        return len(journal.groups) if journal else 0

    mine = groups_of(rank)
    return tuple(
        sorted(
            r
            for r, a in activities.items()
            if r != rank and a.kind != "store-wait" and (a.kind in GONE or groups_of(r) <= mine)
        )
    )


def _owners(job: JobSnapshot) -> dict[int, int]:
    """Process id → rank, children included."""
    owners: dict[int, int] = {}
    for rank in job.ranks:
        queue = [rank.process] if rank.process else []
        while queue:
            process = queue.pop()
            owners[process.pid] = rank.rank
            queue.extend(process.children)
    return owners


def _solve(waits: tuple[Wait, ...], activities: dict[int, Activity]) -> Graph:
    needs: dict[int, set[int]] = {}
    for wait in waits:
        needs.setdefault(wait.waiter, set()).update(wait.on)
    free = {r for r, a in activities.items() if r not in needs and a.kind not in IMMOVABLE}
    waiting_for: dict[int, list[int]] = {}
    for waiter, on in needs.items():
        for r in on:
            waiting_for.setdefault(r, []).append(waiter)
    left = {waiter: len(on) for waiter, on in needs.items()}
    queue = list(free)
    while queue:
        for waiter in waiting_for.get(queue.pop(), ()):
            left[waiter] -= 1
            if left[waiter] == 0 and activities[waiter].kind not in IMMOVABLE:
                free.add(waiter)
                queue.append(waiter)
    stuck = frozenset(needs) - free
    roots = frozenset(r for r in waiting_for if r not in needs)
    return Graph(waits, stuck, roots)
