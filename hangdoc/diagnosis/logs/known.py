"""The facts of all logs together: groups and their members, who waits in which call, and how far each rank is.

Numbers are compared within one group alone, and not at all in a group with messages: torch counts those apart in one of
its numbers and together with the calls in the others. A rank whose last call enqueued has a lower number has not
finished *issuing* the call (torch notes it after NCCL's function has returned); that it never called it would be
another claim.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property

from hangdoc.diagnosis.bounds import COMPARED
from hangdoc.diagnosis.logs.meetings import CallKey, Meeting
from hangdoc.model.logged import Alive, Behind, Ended, Logged, Member, Overdue, Progress, Raised, Stream
from hangdoc.model.snapshot import JobSnapshot

_MESSAGES = ("SEND", "RECV", "send", "recv", "isend", "irecv")
_SIGABRT = 6
"""A watchdog's way to end a rank, after a time-out."""
_DEADLY = (4, 7, 8, 9, 11)
"""SIGILL, SIGBUS, SIGFPE, SIGKILL, SIGSEGV: no watchdog ends a rank so."""
_SLACK = 2.0
"""Seconds that the clocks of two hosts, and two threads of one rank, may differ; judgement."""
STORE = "store/"
"""In place of a group, before the key of the store for which a rank waits."""
DEFAULT = "0"
"""The first group's number."""


class Known:
    """What the logs say of a job, put together."""

    def __init__(self, job: JobSnapshot, logged: Logged) -> None:
        self.job = job
        self.logged = logged
        self._members: dict[str, tuple[frozenset[int], bool]] = {}
        self._sizes: dict[str, int] = {}

    @cached_property
    def world(self) -> int | None:
        """How many ranks there are, where a line says it."""
        return self.job.world_size

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """All ranks that the logs know."""
        return tuple(sorted({rank.rank for rank in self.job.ranks} | set(range(min(self.world or 0, 1 << 16)))))

    @cached_property
    def folded(self) -> bool:
        """True if whoever wrote the log left repeated lines out: a rank that is not shown is then not silent."""
        return any(file.folded for file in self.logged.files)

    @cached_property
    def whole(self) -> bool:
        """True if the logs go on to the end of the job, as its launcher tells it, and nothing was left out."""
        return not self.folded and bool(self.logged.ends) and not any(file.cut for file in self.logged.files)

    @cached_property
    def overdue(self) -> Mapping[int, tuple[Overdue, ...]]:
        """Rank → its overdue calls."""
        found: dict[int, list[Overdue]] = defaultdict(list)
        for call in self.logged.overdue:
            if call.rank is not None and (call.timeout_ms or not (self.timed_out or self.interrupted)):
                found[call.rank].append(call)
        return {rank: tuple(calls) for rank, calls in found.items()}

    @cached_property
    def timed_out(self) -> bool:
        """True if some rank's time-out is told. Else all that ended waits is the end of a peer."""
        return any(call.timeout_ms for call in self.logged.overdue)

    @cached_property
    def interrupted(self) -> bool:
        """True if somebody ended the job by Ctrl-C: connections close then, and tell nothing."""
        return any(each.error.startswith("KeyboardInterrupt") for each in self.logged.raised)

    @cached_property
    def cut_off(self) -> frozenset[int]:
        """Ranks whose connection a peer closed, after a time-out of that peer's: in a call, or late in it."""
        return frozenset(c.rank for c in self.logged.overdue if c.rank is not None and c.rank not in self.overdue)

    @cached_property
    def first_overdue_at(self) -> float:
        """When the first time-out of all was told; 0.0 where none, or no time, was."""
        return min((call.at for call in self.logged.overdue if call.at), default=0.0)

    @cached_property
    def meetings(self) -> tuple[Meeting, ...]:
        """The calls in which ranks are overdue, the one with the most of them first."""
        found: dict[CallKey, dict[int, Overdue]] = defaultdict(dict)
        for rank, calls in self.overdue.items():
            for call in calls:
                key = CallKey(call.group, call.sequence, "" if call.sequence >= 0 else call.op)
                found[key].setdefault(rank, call)
        meetings = [self._meeting(key, waiting) for key, waiting in found.items()]
        return tuple(sorted(meetings, key=lambda each: (-len(each.waiting), each.key.group, each.key.sequence)))

    def _meeting(self, key: CallKey, waiting: Mapping[int, Overdue]) -> Meeting:
        members, all_known = self.members(key.group)
        ahead = frozenset(
            rank for rank, far in self.enqueued(key.group).items() if far.enqueued >= key.sequence
        ) if key.numbered and not self.is_not_compared(key.group) else frozenset()  # fmt: skip
        arrived = frozenset(waiting) | ahead
        return Meeting(key, waiting, arrived, members, len(members) if all_known else self.size(key.group))

    def is_not_compared(self, group: str) -> bool:
        """True if numbers of the group's calls can't be compared between ranks: a message of it is overdue, or the name
        stands for several groups."""
        return group in self._not_compared

    @cached_property
    def _not_compared(self) -> frozenset[str]:
        messages = {call.group for call in self.logged.overdue if call.op in _MESSAGES}
        places: dict[tuple[str, int], set[int]] = defaultdict(set)
        calls: dict[tuple[int | None, int], set[str]] = defaultdict(set)
        for call in self.logged.overdue:
            if call.group and call.member >= 0 and call.rank is not None:
                places[call.group, call.member].add(call.rank)
            elif not call.group and call.sequence >= 0:
                # Before torch 2.3 no line names a group: one number of one rank, of two operations, is of two groups.
                calls[call.rank, call.sequence].add(call.op)
        # Two ranks at one place of a group: torch before 2.5 numbers the groups of each process for itself.
        several = {group for (group, _), ranks in places.items() if len(ranks) > 1}
        unnamed = {""} if any(len(ops) > 1 for ops in calls.values()) else set()
        return frozenset(messages | several | unnamed)

    @cached_property
    def several_runs(self) -> bool:
        """True if two files tell of one rank at different calls of one group: of two jobs, or of two runs of one."""
        told: dict[tuple[int | None, str], dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        for call in self.logged.overdue:
            if call.rank is not None and call.group and call.sequence >= 0:
                told[call.rank, call.group][call.place.file].add(call.sequence)
        return any(len({frozenset(each) for each in files.values()}) > 1 for files in told.values())

    def enqueued(self, group: str) -> Mapping[int, Progress]:
        """Rank → the last it says of how far it is in the group."""
        return self._enqueued.get(group, {})

    @cached_property
    def _enqueued(self) -> Mapping[str, Mapping[int, Progress]]:
        found: dict[str, dict[int, Progress]] = defaultdict(dict)
        for each in self.logged.progress:
            if each.rank is None or not each.group:
                continue
            before = found[each.group].get(each.rank)
            if before is None or (each.at, each.enqueued) >= (before.at, before.enqueued):
                found[each.group][each.rank] = each
        return found

    @cached_property
    def _by_group(self) -> Mapping[str, tuple[Overdue | Progress | Member, ...]]:
        """Group → the facts about it. There may be as many groups as ranks."""
        found: dict[str, list[Overdue | Progress | Member]] = defaultdict(list)
        facts: tuple[Overdue | Progress | Member, ...]
        facts = (*self.logged.overdue, *self.logged.progress, *self.logged.members)
        for each in facts:
            found[each.group].append(each)
        return {group: tuple(facts) for group, facts in found.items()}

    def members(self, group: str) -> tuple[frozenset[int], bool]:
        """The global ranks of a group that are known, and whether those are all."""
        if group not in self._members:
            self._members[group] = self._members_of(group)
        return self._members[group]

    def _members_of(self, group: str) -> tuple[frozenset[int], bool]:
        size = self.size(group)
        named = frozenset(each.rank for each in self._by_group.get(group, ()) if each.rank is not None)
        if size and len(named) == size:
            return named, True
        if size and size == self.world:
            return frozenset(range(size)), True
        if size and len(self.ranks) == size and named <= set(self.ranks):
            return frozenset(self.ranks), True
        if size and self._in_own_places(group) and max(self.ranks, default=0) < size:
            # The default group, or one of the whole job.
            return frozenset(range(size)), True
        if not group or group.startswith(STORE) or self._is_default(group):
            # Before torch 2.3 no line names a group, anybody may set a key, and every rank is in the default group.
            return named | frozenset(self.ranks), False
        reports = (
            each
            for each in self.logged.behind
            if each.group in ("", group) and (set(each.joined) & named or not each.joined)
        )
        return named.union(*((*each.ranks, *each.joined) for each in reports)), False

    def size(self, group: str) -> int:
        """How many members a group has: as its own line says, or by what a gather makes of one rank's part; 0: unknown.

        Example: an all-gather of 1 element into 6 is one of six ranks.
        """
        if group not in self._sizes:
            self._sizes[group] = self._size_of(group)
        return self._sizes[group]

    def _size_of(self, group: str) -> int:
        facts = self._by_group.get(group, ())
        said = {each.size for each in facts if isinstance(each, Member) and each.size}
        if len(said) == 1:
            return next(iter(said))
        found = {size for c in facts if isinstance(c, Overdue) and (size := _ratio(c))}
        if len(found) == 1:
            return next(iter(found))
        return self.world or 0 if self._is_default(group) else 0

    def _is_default(self, group: str) -> bool:
        number = group.partition("(")[0]
        return number == DEFAULT or "default_pg" in group

    def _in_own_places(self, group: str) -> bool:
        facts = (each for each in self._by_group.get(group, ()) if not isinstance(each, Member))
        found = [each for each in facts if each.member >= 0]
        return bool(found) and all(each.rank == each.member for each in found)

    @cached_property
    def alive(self) -> Mapping[int, float]:
        """Rank → when its heartbeat thread last answered: its process lived, and it may be in a call or not."""
        found: dict[int, float] = {}
        for each in self.logged.alive:
            if each.rank is not None and not each.own and not each.stuck:
                found[each.rank] = max(found.get(each.rank, 0.0), each.at)
        return found

    @cached_property
    def stuck(self) -> Mapping[int, Alive]:
        """Rank → its monitor's word, before the first time-out was told, that its watchdog thread is stuck."""
        found = {each.rank: each for each in self.logged.alive if each.stuck and each.rank is not None}
        return {rank: each for rank, each in found.items() if rank not in self.overdue and self._before_first(each)}

    @cached_property
    def streams(self) -> Mapping[int, Stream]:
        """Rank → the last line of its own work."""
        return {each.rank: each for each in self.logged.streams if each.rank is not None}

    @cached_property
    def ends(self) -> Mapping[int, Ended]:
        """Rank → how it ended, as its launcher tells it."""
        found: dict[int, Ended] = {}
        for each in self.logged.ends:
            rank = each.rank if each.rank is not None else each.local_rank if self.one_host else None
            if rank is not None and (not self.world or rank < self.world):
                found.setdefault(rank, each)
        return found

    @cached_property
    def one_host(self) -> bool:
        """True if the launcher's lines know of one host alone."""
        return len({each.host for each in self.logged.ends if each.host}) <= 1

    @cached_property
    def failures(self) -> tuple[Raised, ...]:
        """Exceptions that are no consequence of a hang's abort, raised before the first time-out was told."""
        # What a rank raised that then waited in a call, it had caught; and so may another with the same error.
        caught = {each.error for each in self.logged.raised if each.rank in self.overdue and self._before_first(each)}
        own = (each for each in self.logged.raised if not each.follows and self._before_first(each))
        return tuple(each for each in own if each.error not in caught)

    def went_on(self, raised: Raised) -> bool:
        """True if its rank wrote of its work long after the exception, and did not end by itself: it was caught."""
        stream = self.streams.get(raised.rank) if raised.rank is not None else None
        end = self.ends.get(raised.rank) if raised.rank is not None else None
        if stream is None or stream.place.file != raised.place.file or (end is not None and end.status):
            return False
        return stream.place.line > raised.place.line + 3 * len(raised.stack) + COMPARED

    @cached_property
    def victims(self) -> frozenset[int]:
        """Ranks that waited, or whose exception can only follow from another's end."""
        failed = {each.rank for each in self.failures}
        after = {each.rank for each in self.logged.raised if each.follows and each.rank not in failed}
        return frozenset(rank for rank in (*self.overdue, *after) if rank is not None)

    @cached_property
    def ended(self) -> Mapping[int, Ended]:
        """Rank → its end by a signal or with a status that nobody asked for, not as a victim, before the first
        time-out."""
        return {
            rank: end
            for rank, end in self.ends.items()
            if (end.signal in _DEADLY or end.status or (end.signal == _SIGABRT and not self.timed_out))
            if not end.asked and rank not in self.victims
            if self._before_first(end)
        }

    def _before_first(self, fact: Raised | Ended | Alive) -> bool:
        if not self.timed_out:
            return True
        if fact.at and self.first_overdue_at:
            return fact.at <= self.first_overdue_at
        first = self._first_lines.get(fact.place.file)
        return first is None or fact.place.line < first

    @cached_property
    def _first_lines(self) -> Mapping[str, int]:
        """File → the line of its first time-out."""
        found: dict[str, int] = {}
        for call in self.logged.overdue:
            found[call.place.file] = min(found.get(call.place.file, call.place.line), call.place.line)
        return found

    def is_last(self, raised: Raised) -> bool:
        """True if nothing that a program wrote of its work stands behind the exception: else it was caught and
        logged."""
        if self.logged.ends:
            return True
        file = next((each for each in self.logged.files if each.path == raised.place.file), None)
        return file is None or raised.place.line + 3 * len(raised.stack) + COMPARED >= file.lines

    def is_behind(self, rank: int, meeting: Meeting) -> Progress | None:
        """Its own word that it had not finished issuing the call when the others had been overdue in it."""
        if self.is_not_compared(meeting.key.group) or not meeting.key.numbered:
            return None
        far = self.enqueued(meeting.key.group).get(rank)
        if far is None or far.enqueued >= meeting.key.sequence:
            return None
        late = not far.at or not meeting.first_at or far.at >= meeting.first_at - _SLACK
        return far if late else None

    def reports_of(self, rank: int, meeting: Meeting) -> tuple[Behind, ...]:
        """torch's own reports that the rank is behind this call."""
        return tuple(
            each
            for each in self.logged.behind
            if rank in each.ranks
            and each.sequence in (-1, meeting.key.sequence)
            and each.group in ("", meeting.key.group)
        )


def _ratio(call: Overdue) -> int:
    low, high = sorted((call.numel_in, call.numel_out))
    gathers = call.op in ("ALLGATHER", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "REDUCE_SCATTER")
    return high // low if gathers and low > 0 and high % low == 0 else 0
