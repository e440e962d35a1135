"""What the times in dumps say: is this one moment of a hang, or several moments of a job that runs?

A dump does not carry the time at which it was written. Its file does, unless somebody copied it; and the latest time
inside is a lower bound. Calls carry when they were issued and how long PyTorch waits for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter, sub

from hangdoc.diagnosis.calls.history import GroupHistory, RankProgram, Token
from hangdoc.diagnosis.calls.streams import Streams
from hangdoc.model.journal import Call
from hangdoc.model.operations import operation
from hangdoc.model.shared_calls import Rows, SharedCalls

_created = attrgetter("created_ns")

_EARLY = 1.0
"""Seconds by which a clock, a file system or the watchdog's rounds may be off."""
_LONGEST_AFTER = 900.0
"""Seconds from a time-out to the end of the job, at most; chosen by hand (the watchdog writes its dump within a minute,
and ends the job). A file that is younger was copied."""
_USUAL_TIMEOUT = 1800.0
"""Seconds of a call whose dump does not say its own (schema 2.0): the longer of torch's defaults, 10 and 30 min."""
_SHORTEST_STALL = {True: 10.0, False: 5.0}
"""Seconds for which a call must be pending to tell a hang from a slow step, with devices and without: there the CPU
runs ahead, and calls are old before their turn comes. Chosen by hand."""
_AT_WORK, _OF_TIMEOUT = 30.0, 0.05
"""Seconds for which a call must be pending where a rank has nothing under way, and at most that share of its time-out:
that rank may be at work that all others wait for, such as a checkpoint. Chosen by hand."""
_STALL_UNSEEN = 20.0
"""The same where the dumps hold only what was under way."""
_STILL_MOVED, _LONG_BEFORE = 0.5, 0.8
"""Shares of a time-out: a rank whose dump shows that it moved less than the first before, and that was written longer
than the second before all that timed out, ended then. Chosen by hand: both, as hosts' clocks differ."""
_TIMES_USUAL = 3.0
"""Times the longest pause that the job made before; chosen by hand."""


class Moment(Enum):
    """What the dumps are dumps of."""

    COMPLETE = "complete"
    """Every call had completed, and all ranks had issued the same."""
    TIMED_OUT = "timed out"
    """PyTorch gave up on a call."""
    STALLED = "stalled"
    """Calls were pending for longer than the job ever paused and the dumps lie apart."""
    APART = "apart"
    """A rank completed a call that another had not issued yet: the dumps are of different moments."""
    FRESH = "fresh"
    """The files were written when the calls under way had only just been issued: the job may run."""
    TIMELESS = "timeless"
    """Nothing shows for how long the calls were pending, or that it was longer than the job ever paused: the files'
    times are those of a copy, or lie further apart than that."""


@dataclass(frozen=True, slots=True)
class Waited:
    """``rank`` has waited for ``seconds`` in its first call that has not completed."""

    rank: int
    since: float
    seconds: float
    timeout: float
    gave_up: bool = False


@dataclass(frozen=True)
class DumpTimes:
    """The times of all dumps of a folder, in seconds of Unix time."""

    moment: Moment
    waits: tuple[Waited, ...] = ()
    skew: float = 0.0
    """Seconds between the first and the last dump."""
    ahead: tuple[int, int] | None = None
    """(rank that completed a call, rank that had not issued it), where the dumps are of different moments."""
    ended_first: tuple[int, ...] = ()
    """The ranks whose dumps were written long before those of the ranks that timed out, when they had just moved: the
    ranks wrote them as they ended."""
    before: float = 0.0
    """By how many seconds, at least."""

    @property
    def first_out(self) -> Waited | None:
        """The rank that timed out first; None where none did."""
        out = [w for w in self.waits if w.gave_up]
        # Ranks whose times another host has rebuilt are a microsecond apart.
        return min(out, key=lambda w: (round(w.since + w.timeout, 5), w.rank), default=None)

    @property
    def longest(self) -> Waited | None:
        """The rank that has waited longest."""
        return max(self.waits, key=lambda w: (w.seconds, -w.rank), default=None)


# One branch for each moment that the times can show, in the order in which they exclude each other.
def dump_times(programs: Mapping[int, RankProgram], histories: Sequence[GroupHistory], streams: Streams) -> DumpTimes:
    """What the times say of the ranks of ``programs``, all of them known by their dumps."""
    issued = _Issued()
    latest = {rank: _latest(program, issued) for rank, program in programs.items()}
    newest = max(latest.values(), default=0.0)
    pending = {rank: found for rank, program in programs.items() if (found := _pending(program, streams)) is not None}
    apart = _apart(programs, histories)
    written = {rank: program.journal.written_ns / 1e9 for rank, program in programs.items()}
    trusted = _are_of_the_dumps(written, latest, pending)
    if apart is not None and trusted and written[apart[1]] > programs[apart[0]].journal.moved_ns / 1e9 > 0:
        apart = None  # the job had come to rest before either dump: their numbers do not mean the same
    if not pending:
        return DumpTimes(Moment.COMPLETE if apart is None else Moment.APART, ahead=apart)
    # Without the files' times, the last thing that any dump shows is the earliest that they can have been written.
    now = written if trusted else dict.fromkeys(programs, newest)
    skew = max(written.values()) - min(written.values()) if trusted else 0.0
    waits = _waits(programs, pending, now)
    usual = max(2 * skew, _TIMES_USUAL * issued.longest_pause)
    moment = _moment(programs, streams, now, waits, usual, apart=apart is not None)
    if moment is Moment.FRESH and not (trusted and _tell_apart(written)):
        moment = Moment.TIMELESS
    ended = _ended_first(written, latest, waits) if trusted else ()
    out = [written[wait.rank] for wait in waits if wait.gave_up]
    before = min(out) - max(written[rank] for rank in ended) if ended else 0.0
    return DumpTimes(moment, waits, skew, apart, ended, before)


def _ended_first(written: Mapping[int, float], latest: Mapping[int, float], waits: Sequence[Waited]) -> tuple[int, ...]:
    """``DumpTimes.ended_first``; () where that is half of the ranks or more.

    Example: ranks 0 to 2 gave up after 600 s, and rank 3's dump was written 600 s before theirs, half a second after
    its last call → (3,).
    """
    out = [wait for wait in waits if wait.gave_up]
    limit = min((wait.timeout or _USUAL_TIMEOUT for wait in out), default=0.0)
    first = min((written[wait.rank] for wait in out), default=0.0)
    gave_up = {wait.rank for wait in out}
    found = tuple(
        rank
        for rank, at in sorted(written.items())
        if rank not in gave_up
        and latest[rank] > 0
        and at - latest[rank] < _STILL_MOVED * limit
        and at + _LONG_BEFORE * limit < first
    )
    return found if 2 * len(found) < len(written) else ()


def _waits(
    programs: Mapping[int, RankProgram], pending: Mapping[int, tuple[float, float]], now: Mapping[int, float]
) -> tuple[Waited, ...]:
    """How long each rank has waited. ``pending``: rank → (since when, time-out); ``now``: rank → time of its dump."""
    return tuple(
        Waited(rank, since, now[rank] - since, timeout, _gave_up(programs[rank], now[rank] - since, timeout))
        for rank, (since, timeout) in sorted(pending.items())
    )


def _moment(
    programs: Mapping[int, RankProgram],
    streams: Streams,
    now: Mapping[int, float],
    waits: Sequence[Waited],
    usual: float,
    *,
    apart: bool,
) -> Moment:
    """What the dumps are dumps of, where calls are under way. ``now``: rank → when its dump was written; ``usual``:
    seconds that a call may be pending in a job that runs, by its own pauses and by how far the dumps lie apart."""
    if any(wait.gave_up for wait in waits):
        return Moment.TIMED_OUT
    if apart:
        return Moment.APART
    longest = max(wait.seconds for wait in waits)
    quiet = _quiet_for(programs, now, longest) if streams else (longest, longest)
    if longest <= _shortest_stall(programs, streams, waits) or quiet[1] <= _SHORTEST_STALL[True] / 2:
        return Moment.FRESH
    return Moment.STALLED if longest > usual and quiet[0] > _SHORTEST_STALL[True] / 2 else Moment.TIMELESS


def _shortest_stall(programs: Mapping[int, RankProgram], streams: Streams, waits: Sequence[Waited]) -> float:
    """Seconds for which a call must be pending to tell a hang from a slow step.

    Example: a time-out of 600 s, and rank 0 has nothing under way → 30.
    """
    least = _SHORTEST_STALL[bool(streams)]
    if not streams or len(waits) == len(programs):
        return least
    return max(least, min(_AT_WORK, _OF_TIMEOUT * max((w.timeout for w in waits), default=0.0)))


def _quiet_for(programs: Mapping[int, RankProgram], now: Mapping[int, float], longest: float) -> tuple[float, float]:
    """For how many seconds nothing had moved when the dumps were written: anywhere, and on each rank by its own clock.
    A CPU may be far ahead of its device, and its calls old before their turn comes.

    Example: two ranks whose clocks are 200 s apart have stood still for 60 s → (-140, 60).
    """
    if not any(program.recording.completed for program in programs.values()):
        # What completed, and when, was left out.
        return (longest, longest) if longest > _STALL_UNSEEN else (0.0, 0.0)
    moved = {rank: program.journal.moved_ns / 1e9 for rank, program in programs.items()}
    known = [now[rank] - at for rank, at in moved.items() if at]
    if not known:
        return longest, longest
    return min(now.values()) - max(moved.values()), min(known)


class _Issued:
    """When ranks issued their calls. Those that have all times in common are looked at once."""

    def __init__(self) -> None:
        self._latest: dict[tuple[Rows, ...], int] = {}
        self._longest_pause_ns = 0

    @property
    def longest_pause(self) -> float:
        """The longest time between two calls of one rank, the first ones left out: they make the communicators."""
        return self._longest_pause_ns / 1e9

    def latest_ns(self, calls: Sequence[Call]) -> int:
        """When a rank issued its last call."""
        if not isinstance(calls, SharedCalls):
            return self._add(list(map(_created, calls)))
        key = tuple([part.rows for part in calls.parts])
        if key not in self._latest:
            self._latest[key] = self._add(calls.created_ns)
        return self._latest[key]

    def _add(self, times: list[int]) -> int:
        times.sort()
        pauses = map(sub, times[3:], times[2:])
        self._longest_pause_ns = max(self._longest_pause_ns, max(pauses, default=0))
        return times[-1] if times else 0


def _latest(program: RankProgram, issued: _Issued) -> float:
    """The latest time in the dump."""
    journal = program.journal
    of_calls = issued.latest_ns(journal.calls)
    if journal.latest_ns:
        return journal.latest_ns / 1e9
    return max(of_calls, max((m.created_ns for m in journal.point_to_points), default=0)) / 1e9


def _pending(program: RankProgram, streams: Streams) -> tuple[float, float] | None:
    """(since when the rank waits, how long PyTorch lets it), in seconds; None where nothing is under way."""
    front = streams.fronts.get(program.rank)
    if front is not None:
        return front.created_ns / 1e9, front.timeout_ms / 1000
    place = next(iter(program.recording.pending), None)
    if place is None:
        return None
    return program.journal.call_issued_ns(place) / 1e9, program.journal.calls[place].timeout_ms / 1000


def _are_of_the_dumps(
    written: Mapping[int, float], latest: Mapping[int, float], pending: Mapping[int, tuple[float, float]]
) -> bool:
    """True if the files' times can be those at which the dumps were written: none is before what its dump shows, and
    no call outlived its time-out by long."""
    if any(not at or at + _EARLY < latest[rank] for rank, at in written.items()):
        return False
    return all(
        written[rank] - since < (timeout or _USUAL_TIMEOUT) + _LONGEST_AFTER
        for rank, (since, timeout) in pending.items()
    )


def _tell_apart(written: Mapping[int, float]) -> bool:
    """False if all files have one time: no two ranks write at the same nanosecond, so somebody set it."""
    return len(written) < 2 or len(set(written.values())) > 1


def _gave_up(program: RankProgram, seconds: float, timeout: float) -> bool:
    return bool(program.journal.gave_up) or bool(timeout and seconds + _EARLY >= timeout)


def _apart(programs: Mapping[int, RankProgram], histories: Sequence[GroupHistory]) -> tuple[int, int] | None:
    """(a rank that completed a call which needs all, a rank that had not issued it): then the second moved on after
    its dump was written."""
    for history in histories:
        if history.open or history.inferred:
            continue
        seen = [rank for rank in history.members if rank in programs]
        # Ranks of equal programs share one list of tokens.
        lists = {id(calls): calls for calls in history.tokens.values()}
        last = {key: _last_meeting(calls) for key, calls in lists.items()}
        done = {rank: last.get(id(history.tokens.get(rank)), 0) for rank in seen}
        ahead = max(seen, key=done.__getitem__, default=None)
        if ahead is None or not done[ahead]:
            continue
        late = min(seen, key=history.issued)
        if done[ahead] > history.issued(late):
            return ahead, late
    return None


def _last_meeting(calls: Sequence[Token]) -> int:
    """The number of the last of these calls that completed and that nobody completes before all are there; 0: none."""
    return next((t.sequence for t in reversed(calls) if not t.pending and not operation(t.op).rooted), 0)
