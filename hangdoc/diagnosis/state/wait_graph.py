"""Who waits for whom.

A waiting rank needs *every* rank that it waits for, so it can go on only if all of them can. The ranks that remain are
stuck for good. Thousands of ranks may wait in one call for the same others: that set is computed once and shared.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from hangdoc.diagnosis.calls.history import GroupHistory, GroupKey, Token
from hangdoc.diagnosis.calls.stack_calls import group_shown
from hangdoc.diagnosis.calls.streams import Streams
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.state.activity import own_store_call
from hangdoc.diagnosis.state.process import descendants
from hangdoc.diagnosis.state.threads import Chain, End
from hangdoc.model.diagnosis import Activity, Wait
from hangdoc.model.kinds import COMMUNICATING, GONE, MESSAGES, ActivityKind, WaitReason
from hangdoc.model.process import ProcessKey
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

IMMOVABLE = GONE | {ActivityKind.STOPPED}
_ON_FILES = frozenset({ActivityKind.FILE_LOCK, ActivityKind.PIPE, ActivityKind.IO, ActivityKind.WAITING_FOR_CHILD})
_NO_DEVICES = Streams({})


@dataclass(frozen=True)
class Graph:
    """The wait-for graph of the job's ranks."""

    waits: tuple[Wait, ...]
    stuck: frozenset[int]
    """Ranks that no future step of the others can set free."""
    roots: frozenset[int]
    """Ranks that others wait for, directly or not, and that wait for no rank themselves."""
    movable: frozenset[int] = frozenset()
    """Ranks that go on as soon as nothing holds them: neither gone nor stopped."""

    def dissolves(self, ranks: Collection[int]) -> bool:
        """True if no rank would be stuck if these ranks waited for nothing."""
        freed = frozenset(ranks)
        left = tuple(w for w in self.waits if w.waiter not in freed)
        return not _stuck(left, self.movable)

    def on(self, rank: int) -> frozenset[int]:
        """The ranks that ``rank`` waits for."""
        each = [self._on[id(wait.on)] for wait in self._by_waiter.get(rank, ())]
        return each[0] if len(each) == 1 else frozenset().union(*each)

    @cached_property
    def _on(self) -> dict[int, frozenset[int]]:
        """The ranks of each ``on``, once for all that share it."""
        return {id(wait.on): frozenset(wait.on) for wait in distinct_waits(self.waits)}

    @cached_property
    def _by_waiter(self) -> dict[int, list[Wait]]:
        found: dict[int, list[Wait]] = {}
        for wait in self.waits:
            found.setdefault(wait.waiter, []).append(wait)
        return found


def build(
    job: JobSnapshot,
    activities: dict[int, Activity],
    groups: list[GroupHistory],
    held: Mapping[int, Token],
    shared_locks: Mapping[int, frozenset[int]],
    streams: Streams = _NO_DEVICES,
    *,
    chains: Mapping[int, Chain] | None = None,
    setters: Mapping[int, tuple[int, ...]] | None = None,
) -> Graph:
    """Join activities and journals into the graph.

    ``held``: rank → the call that a thread is in which its main thread waits for, or which holds its lock.
    ``shared_locks``: rank → the ranks that hold the lock that it waits for. ``streams``: where devices are.
    ``chains``: rank → the threads that its wait leads to. ``setters``: rank → the ranks on their way to set the store
    key that it waits for, or that are to answer it. Example: ranks 0 and 1 are in all_reduce #7, rank 2 sleeps → 0 and
    1 wait for 2, a root.
    """
    builder = _Builder(
        job, activities, {g.key: g for g in groups}, held, shared_locks, streams, chains or {}, setters or {}
    )
    waits = (builder.wait_of(rank, activity) for rank, activity in activities.items())
    found = tuple(wait for wait in waits if wait is not None and wait.on)
    return graph_of(found, frozenset(r for r, a in activities.items() if a.kind not in IMMOVABLE))


def graph_of(waits: tuple[Wait, ...], movable: frozenset[int]) -> Graph:
    """The graph of these waits."""
    roots = frozenset(r for wait in distinct_waits(waits) for r in wait.on) - frozenset(w.waiter for w in waits)
    return Graph(waits, _stuck(waits, movable), roots, movable)


@dataclass
class _Builder:
    """Makes the waits of all ranks. The sets that many of them share are kept."""

    job: JobSnapshot
    activities: dict[int, Activity]
    groups: dict[GroupKey, GroupHistory]
    held: Mapping[int, Token]
    shared_locks: Mapping[int, frozenset[int]]
    streams: Streams
    chains: Mapping[int, Chain]
    setters: Mapping[int, tuple[int, ...]]
    _in_calls: dict[tuple[int, int], tuple[tuple[int, ...], dict[Hashable, tuple[int, ...]]]] = field(
        default_factory=dict
    )
    _waited_for: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    _in_stacks: dict[Hashable, tuple[int, ...]] = field(default_factory=dict)
    _in_store: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _elsewhere: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)

    @cached_property
    def snapshots(self) -> dict[int, RankSnapshot]:
        """Rank → its snapshot."""
        return {r.rank: r for r in self.job.ranks}

    @cached_property
    def owners(self) -> dict[ProcessKey, int]:
        """Process → rank, children included."""
        return _owners(self.job)

    def wait_of(self, rank: int, activity: Activity) -> Wait | None:
        """The ranks that one rank waits for; None where it waits for no rank."""
        # One `if` for each kind of wait.
        kind = activity.kind
        if rank in self.held:
            return self._over_held_lock(rank, self.held[rank])
        if rank in self.shared_locks:
            return Wait(rank, tuple(sorted(self.shared_locks[rank])), activity.text, "stack")
        if rank in self.chains:
            chain = self.chains[rank]
            on = chain.needs(rank) or self._may_yet_ask(chain) or self._outside_the_call_of(chain, rank)
            return Wait(rank, on, activity.text, "process")
        if kind == ActivityKind.IN_COLLECTIVE:
            return self._in_collective(rank, activity)
        if kind in MESSAGES and self.streams.runs_ahead(rank):
            return Wait(rank, self.streams.awaited(rank), activity.text, "journal")
        if kind in MESSAGES and activity.peer is not None and activity.peer in self.activities:
            return Wait(rank, (activity.peer,), activity.text, "journal" if self.snapshots[rank].journal else "stack")
        if kind in MESSAGES and activity.peer is None and activity.members:
            return Wait(rank, activity.members, activity.text, "stack")
        if kind == ActivityKind.STORE_WAIT and not own_store_call(activity.stack):
            return Wait(rank, self._not_joined(rank), activity.text, "stack")
        if rank in self.setters:
            return Wait(rank, self.setters[rank], activity.text, "stack")
        if kind in _ON_FILES and activity.reason not in (WaitReason.QUEUE, WaitReason.TASK):
            return self._on_files(rank, activity)
        return None

    def _over_held_lock(self, rank: int, call: Token) -> Wait:
        """The wait for a lock that another thread of the rank holds during ``call``."""
        history = self.groups.get(call.group)
        missing = self._call(history, call.sequence)[0] if history is not None else ()
        return Wait(rank, missing, f"has not issued {call.op}, during which a lock is held", "journal")

    def _may_yet_ask(self, chain: Chain) -> tuple[int, ...]:
        """The ranks that wait for no other, where the rank's answer takes a further request, which one of them makes.

        Example: three trainers push to a server that answers when all have; 1 and 3 wait for it, 2 reads a file → 2.
        """
        waiting = COMMUNICATING | GONE | {ActivityKind.REMOTE_CALL, ActivityKind.NOT_VISIBLE}
        free = (r for r, a in self.activities.items() if a.kind not in waiting and r not in self.chains)
        return tuple(sorted(free)) if chain.needs_a_request else ()

    def _outside_the_call_of(self, chain: Chain, rank: int) -> tuple[int, ...]:
        """The ranks of which no thread is at the line of the call in which another thread of ``rank`` holds it up; ()
        where that call is none of its own threads', or all ranks are there.

        Example: the main threads of ranks 1 and 2 want a lock that their threads `ema` hold in an all_reduce; rank 0's
        `ema` has not come to it → (0,).
        """
        there = chain.last.where
        if chain.end is not End.CALL or chain.last.rank != rank or there is None:
            return ()
        place = (there.file, there.line)
        if place not in self._elsewhere:  # thousands of ranks may wait so
            self._elsewhere[place] = tuple(r for r in sorted(self.activities) if place not in self._lines_of(r))
        return self._elsewhere[place]

    def _lines_of(self, rank: int) -> set[tuple[str, int]]:
        """The user's innermost line of each of its threads."""
        process = self.snapshots[rank].process
        threads = process.last.threads if process is not None and process.last is not None else ()
        return {(own[0].file, own[0].line) for thread in threads if (own := user_stack(thread.frames))}

    def _in_collective(self, rank: int, activity: Activity) -> Wait | None:
        """The wait in a collective: by its group and number if they are known, else by the lines of the stacks."""
        history = self.groups.get((activity.group or "", activity.members)) if activity.group else None
        if history is not None and activity.sequence is not None:
            return self._collective(rank, activity, history, activity.sequence)
        alike = self._wait_at_same_line(rank, activity)
        others = tuple(r for r in alike.on if r != rank) if alike else self._by_stack(activity)
        return Wait(rank, others, f"has not entered {activity.op or activity.text}", "stack")

    def _on_files(self, rank: int, activity: Activity) -> Wait:
        """The wait for the ranks, or their children, that have the other end of a pipe or socket, or hold a lock."""
        host, process = self.snapshots[rank].host, self.snapshots[rank].process
        # A rank that waits for its child waits for whatever the child waits for.
        by_child = process is not None and activity.kind == ActivityKind.WAITING_FOR_CHILD
        waiting = descendants(process) if process is not None and by_child else [process]
        files = [file for each in waiting if each is not None for file in each.blocking_files]
        holders = {ProcessKey(host, pid) for file in files for pid in file.peers}
        held_by = {self.owners[holder] for holder in holders if holder in self.owners} - {rank}
        return Wait(rank, tuple(sorted(held_by)), activity.text, "process")

    def _collective(self, rank: int, activity: Activity, history: GroupHistory, sequence: int) -> Wait | None:
        """The wait in a call whose group and number are known."""
        missing, odd = self._call(history, sequence)
        call = f"{activity.op} {history.label} #{sequence}"
        late = self._late(history, sequence, missing)
        if late:
            return Wait(rank, late, f"has not issued {call}", "journal")
        others = odd.get(_waiting_in(history.at(rank, sequence)), ())
        return Wait(rank, others, f"issued something else as {call}", "journal") if others else None

    def _late(self, history: GroupHistory, sequence: int, missing: tuple[int, ...]) -> tuple[int, ...]:
        """The ranks that keep the call waiting: ``missing``, and those without a journal that seem not to be in it.

        A rank without a journal counts as in the call if it waits at a line where others wait in it.
        """
        key = (id(history), sequence)
        if key not in self._waited_for:
            lines = self._lines.get(key, {})
            unseen = tuple(r for r in history.blind if not self._waits_at(r, lines))
            # On a device, who has issued the call need not have arrived at it.
            behind = self.streams.not_arrived(history, sequence) if self.streams else ()
            self._waited_for[key] = (*missing, *unseen, *behind) if unseen or behind else missing
        return self._waited_for[key]

    def _waits_at(self, rank: int, lines: dict[Hashable, int]) -> bool:
        activity = self.activities.get(rank)
        return activity is not None and activity.kind == ActivityKind.IN_COLLECTIVE and _place(activity) in lines

    def _call(self, history: GroupHistory, sequence: int) -> tuple[tuple[int, ...], dict[Hashable, tuple[int, ...]]]:
        """(the ranks that have not issued the call with that number, what was issued → the ranks it cannot match).

        The second is filled only if all have issued the number. Example: ranks 0 and 1 issued all_reduce, rank 2
        broadcast → all_reduce: (2,), broadcast: (0, 1).
        """
        key = (id(history), sequence)
        if key in self._in_calls:
            return self._in_calls[key]
        blind = frozenset(history.blind)
        missing = tuple(r for r in history.members if r not in blind and history.issued(r) < sequence)
        issued: dict[Hashable, list[int]] = {}
        for rank in () if missing else history.tokens:
            what = _waiting_in(history.at(rank, sequence))
            if what is not None:
                issued.setdefault(what, []).append(rank)
        usual = max(issued, key=lambda what: len(issued[what]), default=None)
        odd = {what: tuple(issued[usual]) for what in issued if what != usual}
        odd[usual] = tuple(sorted(r for what, ranks in issued.items() if what != usual for r in ranks))
        self._in_calls[key] = missing, odd
        return missing, odd

    def _wait_at_same_line(self, rank: int, activity: Activity) -> Wait | None:
        """The wait of a rank with a journal that is at the same line, in a group that this rank is a member of."""
        for key, places in self._lines.items():
            other = places.get(_place(activity))
            if other is None:
                continue
            theirs = self.activities[other]
            history = self.groups[theirs.group or "", theirs.members]
            if rank in history.members:
                return self._collective(other, theirs, history, key[1])
        return None

    @cached_property
    def _lines(self) -> dict[tuple[int, int], dict[Hashable, int]]:
        """The calls that ranks with a journal wait in: (id of the history, number) → line → one rank at that line."""
        found: dict[tuple[int, int], dict[Hashable, int]] = {}
        for rank, activity in self.activities.items():
            if activity.kind != ActivityKind.IN_COLLECTIVE or activity.sequence is None or activity.where is None:
                continue
            history = self.groups.get((activity.group or "", activity.members))
            if history is not None:
                found.setdefault((id(history), activity.sequence), {}).setdefault(_place(activity), rank)
        return found

    def _by_stack(self, activity: Activity) -> tuple[int, ...]:
        """The ranks that a rank without a journal waits for; stacks alone seldom show which group it is.

        Living ranks outside of a collective; else ended ones; else ranks that are in a collective at another line, or
        of another group. Where its frame shows the group, they are members of it.
        """
        shown = group_shown(activity.stack)
        key = (activity.text, _place(activity), shown)
        if key not in self._in_stacks:
            among = {r: a for r, a in self.activities.items() if shown is None or r in shown[1]}
            outside = [r for r, a in among.items() if a.kind != ActivityKind.IN_COLLECTIVE]
            living = [r for r in outside if among[r].kind not in GONE]
            elsewhere = [
                r
                for r, a in among.items()
                if not _same_place(a, activity) or (shown is not None and group_shown(a.stack) not in (shown, None))
            ]
            self._in_stacks[key] = tuple(sorted(living or outside or elsewhere))
        return self._in_stacks[key]

    def _not_joined(self, rank: int) -> tuple[int, ...]:
        """The ranks that have not reached the wait on the store that ``rank`` is in.

        They have ended, or they wait elsewhere and have made no more groups than it has.
        """
        mine = self._group_count(rank)
        if mine not in self._in_store:
            self._in_store[mine] = tuple(
                sorted(
                    r
                    for r, a in self.activities.items()
                    if a.kind != ActivityKind.STORE_WAIT and (a.kind in GONE or self._group_count(r) <= mine)
                )
            )
        return self._in_store[mine]

    def _group_count(self, rank: int) -> int:
        journal = self.snapshots[rank].journal
        return len(journal.groups) if journal else 0


def _waiting_in(token: Token | None) -> Hashable | None:
    """What must agree for the backend to complete the call; None for a call that has completed."""
    if token is None or not token.pending:
        return None
    return token.op, token.sizes, token.dtypes if token.sizes is not None else (), token.root


def _place(activity: Activity) -> Hashable | None:
    return activity.where and (activity.where.file, activity.where.line)


def _same_place(a: Activity, b: Activity) -> bool:
    """True if two ranks without a journal seem to be in one call: at one user line, else in one operation."""
    if a.kind != ActivityKind.IN_COLLECTIVE:
        return False
    if a.where is not None and b.where is not None:
        return _place(a) == _place(b)
    return a.operation == b.operation


def _owners(job: JobSnapshot) -> dict[ProcessKey, int]:
    """Process → rank, children included."""
    owners: dict[ProcessKey, int] = {}
    for rank in job.ranks:
        queue = [rank.process] if rank.process else []
        while queue:
            process = queue.pop()
            owners[ProcessKey(rank.host, process.pid)] = rank.rank
            queue.extend(process.children)
    return owners


def distinct_waits(waits: tuple[Wait, ...]) -> Collection[Wait]:
    """One wait of each set of waits that share their ``on``."""
    return {id(wait.on): wait for wait in waits}.values()


def _stuck(waits: tuple[Wait, ...], movable: frozenset[int]) -> frozenset[int]:
    """The waiters that no future step of the others sets free.

    Example: 0 waits for 1, 1 for 0 and 2, 3 for 2, and 2 is free to go on → 3 gets free, 0 and 1 are stuck.
    """
    # Ranks that wait for the same others share one object: it is counted down once for all of them.
    waiters: dict[int, list[int]] = {}
    left: dict[int, int] = {}
    needed_by: dict[int, list[int]] = {}
    open_waits: dict[int, int] = {}
    for wait in distinct_waits(waits):
        left[id(wait.on)] = len(wait.on)
        for rank in wait.on:
            needed_by.setdefault(rank, []).append(id(wait.on))
    for wait in waits:
        waiters.setdefault(id(wait.on), []).append(wait.waiter)
        open_waits[wait.waiter] = open_waits.get(wait.waiter, 0) + 1
    waiting = frozenset(open_waits)
    free = set(movable - waiting)
    queue = list(free)
    while queue:
        for what in needed_by.get(queue.pop(), ()):
            left[what] -= 1
            for waiter in waiters[what] if left[what] == 0 else ():
                open_waits[waiter] -= 1
                if open_waits[waiter] == 0 and waiter in movable:
                    free.add(waiter)
                    queue.append(waiter)
    return waiting - free
