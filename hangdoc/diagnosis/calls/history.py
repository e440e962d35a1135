"""The collectives of every group, rank by rank, joined across the job.

Groups are matched by name *and* members (torch numbers new groups with a counter, so one name may mean two
groups). A call's site is its whole user stack, as the innermost line alone cannot tell two callers apart, and the
way through the library below it: of a trainer all calls come from one user line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import repeat
from operator import attrgetter, not_

from hangdoc.diagnosis.bounds import COMPARED
from hangdoc.diagnosis.calls.courses import Track
from hangdoc.diagnosis.calls.folding import Recording, record
from hangdoc.diagnosis.calls.recorded_tokens import (
    ProgramTokens,
    RecordedTokens,
    first_number,
    last_number,
    pending_numbers,
    since,
)
from hangdoc.diagnosis.frames.landmarks import serves_another_thread
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.stacks import Site, call_site
from hangdoc.model.journal import Call, Journal, ProcessGroup
from hangdoc.model.operations import operation
from hangdoc.model.process import Frame, Stack
from hangdoc.model.snapshot import JobSnapshot

GroupKey = tuple[str, tuple[int, ...]]

_stack = attrgetter("stack")

END = "end of program"

_DEFAULT_GROUP = "default_pg"
"""How torch describes the group of all ranks (2.4-2.13)."""


@dataclass(frozen=True, slots=True)
class Token:
    """One call as the alignment sees it. ``order`` is its place in the rank's own program over all groups."""

    rank: int
    group: GroupKey
    sequence: int
    op: str
    site: Site
    sizes: tuple[tuple[int, ...], ...] | None
    """Sizes and dtypes where the operation demands that all ranks agree, else None."""
    dtypes: tuple[str, ...]
    pending: bool
    order: int
    created_ns: int
    stack: Stack
    thread: str = "MainThread"
    thread_id: int = 0
    root: int | None = None
    named: bool = True
    """False: it waits for a collective or a message, and no source shows which."""
    state: str = ""
    """'scheduled', 'started' or 'completed' where a device executes the calls; else ''."""

    @property
    def frame(self) -> Frame | None:
        """The innermost user frame."""
        return next((f for f in self.stack if not is_library(f)), None)


@dataclass(slots=True)
class GroupHistory:
    """All ranks' calls in one group. ``tokens[rank]`` is in order of issue and starts at ``first``."""

    key: GroupKey
    members: tuple[int, ...]
    label: str
    tokens: dict[int, Sequence[Token]] = field(default_factory=dict)
    blind: tuple[int, ...] = ()
    """Members whose journal could not be read."""
    first: int = 1
    inferred: bool = False
    """Made from stacks alone: one call of each rank, without a past; its numbers mean nothing."""
    open: bool = False
    """The journals do not list its members: there may be others."""
    counted: dict[int, int] = field(default_factory=dict)
    """Rank → the last number that its backend says it has issued, where its journal may lack completed calls."""

    def issued(self, rank: int) -> int:
        """The last sequence number that ``rank`` issued (0: none)."""
        return max(last_number(self.tokens.get(rank, ())), self.counted.get(rank, 0))

    def lists(self, ranks: Iterable[int]) -> list[Sequence[Token]]:
        """The calls of these ranks, as far as known: ranks of equal programs share one list, which comes once."""
        known = (self.tokens[rank] for rank in ranks if rank in self.tokens)
        return list({id(calls): calls for calls in known}.values())

    def first_pending(self, rank: int) -> int:
        """The number of the first call that the rank's device has not completed; 0: none, or no device has them."""
        calls = self.tokens.get(rank, ())
        return next(iter(pending_numbers(calls)), 0) if calls and calls[-1].state else 0

    def arrived(self, sequence: int) -> bool:
        """True if every member has issued the call with that number."""
        return not self.blind and all(self.issued(rank) >= sequence for rank in self.members)

    def at(self, rank: int, sequence: int) -> Token | None:
        """The call of ``rank`` with that number, if it is still in its ring."""
        calls = self.tokens.get(rank, ())
        if isinstance(calls, RecordedTokens):
            return calls.numbered(sequence)
        if not calls:
            return None
        offset = sequence - calls[0].sequence
        if 0 <= offset < len(calls) and calls[offset].sequence == sequence:
            return calls[offset]
        return next((t for t in calls if t.sequence == sequence), None)


def group_label(name: str, description: str) -> str:
    """The group's name for people: its description if torch gave it one ('default_pg'), else 'group 3'."""
    if description and description != "undefined":
        return description
    return f"group {name}" if name.isdigit() else name


class RankProgram:
    """One rank's calls in program order, over all its groups. ``recording`` is shared by ranks of equal calls."""

    def __init__(self, rank: int, journal: Journal, recording: Recording, sites: list[Site]) -> None:
        self.rank = rank
        self.journal = journal
        self.recording = recording
        self._sites = sites
        self._made: dict[int, Token] = {}
        self.groups: dict[str, ProcessGroup] = {g.name: g for g in journal.groups}

    @cached_property
    def counted(self) -> dict[str, int]:
        """Group → the last number issued, as a backend counts it whose device executes the calls."""
        if not self.recording.runs_ahead and self.journal.calls:
            return {}
        return {name: issued for name, issued, _, _ in self.journal.status if issued > 0}

    @cached_property
    def tokens(self) -> Sequence[Token]:
        """All calls. Of a job that dumps show, each is made when somebody asks for it."""
        return ProgramTokens(self) if self.recording.course is not None else self.all_tokens()

    def all_tokens(self) -> list[Token]:
        """The same, made at once."""
        return [
            self._made.get(place) or self._made.setdefault(place, self._token(place, call))
            for place, call in enumerate(self.journal.calls)
        ]

    @property
    def pending(self) -> list[Token]:
        """The calls that have not completed."""
        return [self.token(place) for place in self.recording.pending]

    def threads(self, group: str) -> int:
        """How many of the program's own threads issued calls of the group, as far as they are known."""
        track, course = self.recording.by_group.get(group), self.recording.course
        issued = course.calls if course is not None else self.journal.calls
        calls = [issued[place] for place in track.places] if track is not None else []
        return len({call.thread_id for call in calls if not serves_another_thread(call.thread_name)} - {0})

    def key(self, group: str) -> GroupKey:
        """What identifies the group of that name across ranks."""
        known = self.groups.get(group)
        return group, known.members if known else ()

    def token(self, place: int) -> Token:
        """The call at that place of the journal."""
        if place not in self._made:
            self._made[place] = self._token(place, self.journal.calls[place])
        return self._made[place]

    def tokens_at(self, group: str, places: Sequence[int]) -> list[Token]:
        """The calls at these places, which are all of the group."""
        if len(places) < COMPARED:
            return [self.token(place) for place in places]
        # Of many groups a million are made: through their constructor that takes eight times as long.
        issued = self.journal.calls if isinstance(self.journal.calls, tuple) else list(self.journal.calls)
        calls = list(map(issued.__getitem__, places))
        ops = [call.op for call in calls]
        sized = {op: operation(op).sized for op in set(ops)}
        sites = {index: self.site(call) for index, call in zip(map(_stack, calls), calls, strict=True)}
        columns: dict[str, Iterable[object]] = {
            "rank": repeat(self.rank),
            "group": repeat(self.key(group)),
            "sequence": map(attrgetter("sequence"), calls),
            "op": ops,
            "site": map(sites.__getitem__, map(_stack, calls)),
            "sizes": [call.input_sizes if sized[call.op] else None for call in calls],
            "dtypes": map(attrgetter("input_dtypes"), calls),
            "pending": map(not_, map(attrgetter("completed"), calls)),
            "order": places,
            "created_ns": map(attrgetter("created_ns"), calls),
            "stack": map(self.journal.stack, map(_stack, calls)),
            "thread": [call.thread_name or "MainThread" for call in calls],
            "thread_id": map(attrgetter("thread_id"), calls),
            "root": map(attrgetter("root"), calls),
            "named": repeat(True),
            "state": map(attrgetter("state"), calls),
        }
        tokens: list[Token] = list(map(object.__new__, repeat(Token, len(calls))))
        for field_name, column in columns.items():
            deque(map(getattr(Token, field_name).__set__, tokens, column), maxlen=0)
        return tokens

    @property
    def sites(self) -> set[Site]:
        """Where the program issued its calls."""
        return {self._sites[index] if 0 <= index < len(self._sites) else () for index in self.recording.issued_at}

    def site(self, call: Call) -> Site:
        """Where the program issued the call."""
        return self._sites[call.stack] if 0 <= call.stack < len(self._sites) else ()

    def _token(self, place: int, call: Call) -> Token:
        return Token(
            rank=self.rank,
            group=self.key(call.group),
            sequence=call.sequence,
            op=call.op,
            site=self.site(call),
            sizes=call.input_sizes if operation(call.op).sized else None,
            dtypes=call.input_dtypes,
            pending=not call.completed,
            order=place,
            created_ns=call.created_ns,
            stack=self.journal.stack(call.stack),
            thread=call.thread_name or "MainThread",
            thread_id=call.thread_id,
            root=call.root,
            state=call.state,
        )


def programs(job: JobSnapshot) -> dict[int, RankProgram]:
    """Every rank's program, for ranks whose journal was read."""
    journals = {r.rank: r.journal for r in job.ranks if r.journal is not None}
    recordings = record(journals.items())
    unique = {id(recording): recording for recording in recordings.values()}
    tables = {id(recording.stacks): recording.stacks for recording in unique.values()}
    sites = {key: [call_site(stack) for stack in stacks] for key, stacks in tables.items()}
    return {
        rank: RankProgram(rank, journal, recordings[rank], sites[id(recordings[rank].stacks)])
        for rank, journal in journals.items()
    }


def distinct(program_of: dict[int, RankProgram]) -> list[tuple[RankProgram, tuple[int, ...]]]:
    """(program, its ranks) for each set of ranks with equal calls."""
    ranks: dict[int, list[int]] = {}
    for rank, program in program_of.items():
        ranks.setdefault(id(program.recording), []).append(rank)
    return [(program_of[members[0]], tuple(members)) for members in ranks.values()]


def histories(program_of: dict[int, RankProgram], dumped: tuple[int, ...] = ()) -> list[GroupHistory]:
    """The joined histories of all groups that any rank used or made. Ranks of equal calls share one list of tokens.

    ``dumped``: all ranks of a job that only dumps show. A dump may not list a group's members; then the default group
    has at least these, and any other group has at least the ranks that used it.
    """
    found: dict[GroupKey, GroupHistory] = {}
    shared = _SharedTokens()
    everyone = dumped or tuple(sorted(program_of))
    # A backend counts messages and collectives of a group in one place: the last number may be of either.
    with_messages = any(program.journal.point_to_points for program in program_of.values())
    for rank, program in program_of.items():
        for name in dict.fromkeys((*program.groups, *program.recording.by_group)):
            key = program.key(name)
            if key not in found:
                found[key] = _without_calls(program, name, everyone, open_=bool(dumped) and not key[1])
            counted = program.counted.get(name, 0)
            if counted and not with_messages:
                found[key].counted[rank] = counted
            track = program.recording.by_group.get(name)
            if track is not None:
                found[key].tokens[rank] = shared.tokens(found[key], program, name, track)
    for history in found.values():
        _complete(history, program_of)
    return list(found.values())


def _complete(history: GroupHistory, program_of: dict[int, RankProgram]) -> None:
    """Fill in what follows from the calls of all ranks: who is a member, who was not seen, what can be compared."""
    if history.open and history.label != _DEFAULT_GROUP:
        history.members = tuple(sorted(history.tokens))
    history.blind = tuple(r for r in history.members if r not in program_of)
    _correct_counts(history, program_of)
    _cut_to_common_memory(history)


def _correct_counts(history: GroupHistory, program_of: dict[int, RankProgram]) -> None:
    """Correct the numbers of ranks whose dumps show what was under way, and nothing of this group.

    A call that waits for all of its group waits on every rank that issued it. A backend's count may be of messages.
    Example: ranks 1 and 2 wait in all_reduce #7, and rank 0, in whose dump nothing is under way, counts 12 → 6.
    """
    of_none = (rank for rank in history.counted if not history.tokens.get(rank))
    doubted = [rank for rank in of_none if rank in program_of and program_of[rank].journal.active_only]
    if not doubted:
        return  # of a large job it takes a third of all time to look through the calls
    lists = {id(calls): calls for calls in history.tokens.values() if calls}.values()
    waits = [t.sequence for calls in lists for t in calls if t.pending and t.state and not operation(t.op).rooted]
    for rank in doubted if waits else ():
        history.counted[rank] = min(history.counted[rank], min(waits) - 1)


def _without_calls(program: RankProgram, name: str, everyone: tuple[int, ...], *, open_: bool) -> GroupHistory:
    """The history of a group that the program names; of members that nobody lists, ``everyone`` may be one."""
    group, key = program.groups.get(name), program.key(name)
    return GroupHistory(key, key[1] or everyone, group_label(name, group.description if group else ""), open=open_)


class _SharedTokens:
    """Lists of tokens, one for all ranks that issue the same calls in a group."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Sequence[Token]] = {}

    def tokens(self, history: GroupHistory, program: RankProgram, group: str, track: Track) -> Sequence[Token]:
        """The program's calls in the group."""
        # Ranks that differ elsewhere alone issue the same here: the rows of a mesh in their columns, say.
        content = program.recording.content_of(group)
        key = id(history), content if content is not None else program.recording
        if key not in self._known:
            self._known[key] = self._new(program, group, track)
        return self._known[key]

    @staticmethod
    def _new(program: RankProgram, group: str, track: Track) -> Sequence[Token]:
        if program.recording.course is None:
            return program.tokens_at(group, track.places)
        return RecordedTokens(program, group, track.places, track.numbers, program.recording.pending_of(group))


def _cut_to_common_memory(history: GroupHistory) -> None:
    """Drop the calls before the first one that all ranks still have: rings drop old calls at different points."""
    lists = {id(calls): calls for calls in history.tokens.values()}
    history.first = max(map(first_number, lists.values()), default=1)
    cut = {key: since(calls, history.first) for key, calls in lists.items()}
    for rank, calls in history.tokens.items():
        history.tokens[rank] = cut[id(calls)]


def merged(groups: list[GroupHistory], program_of: dict[int, RankProgram]) -> GroupHistory | None:
    """The calls of several groups as one history, in each rank's program order, over the ranks that are members
    of all of them: where no group alone shows a divergence, the order across groups may.

    None where fewer than two ranks share the groups.
    """
    shared = set.intersection(*(set(g.members) for g in groups)) & set(program_of)
    if len(shared) < 2:
        return None
    labels = {g.key: g.label for g in groups}
    starts = {g.key: g.first for g in groups}
    history = GroupHistory(
        ("+".join(sorted(key[0] for key in labels)), tuple(sorted(shared))),
        tuple(sorted(shared)),
        " and ".join(sorted(labels.values())),
        first=max(starts.values()),
    )
    for program, ranks in distinct({rank: program_of[rank] for rank in sorted(shared)}):
        ours = [t for t in program.tokens if t.group in labels and t.sequence >= starts[t.group]]
        # The position in the merged order is the number that has to agree.
        tokens = [replace(t, op=f"{t.op}  {labels[t.group]}", sequence=number) for number, t in enumerate(ours, 1)]
        history.tokens.update(dict.fromkeys(ranks, tokens))
    return history
