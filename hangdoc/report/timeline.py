"""The calls of all ranks on a time line, in the Trace Event Format that Perfetto and chrome://tracing open.

A rank is a process and a group a track. One collective's slices are joined by arrows over the ranks. The hang and the
calls at which the ranks diverged are instants.

Format: "Trace Event Format", docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (2016 and later).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

from hangdoc.model.branches import WORDS, BranchCounts, Taken
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.journal import Call, Journal, PointToPoint, ProcessGroup
from hangdoc.model.process import Process
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot
from hangdoc.model.wording import harmless

_MOST_CALLS = 200_000
"""Calls of one file; of more, each rank's last ones are kept. Perfetto takes a minute for a million."""
_SHORTEST = 1.0
"""Microseconds of a slice: one of length 0 cannot be clicked."""
_MOST_LANES = 16
"""Tracks of a group in a rank; chosen by hand: more calls in flight at once are cut short."""
_MOST_MEMBERS = 16
"""Of a group, from which on a track does not list them; chosen by hand."""
_ENDS = (
    "A slice is drawn from the issue of a call to its end as PyTorch's watchdog noticed it; "
    "where that is not recorded, up to the rank's next call."
)

Event = dict[str, Any]
_Collective = tuple[tuple[str, tuple[int, ...]], int]
"""(what identifies the group, number of the call in it)."""


def render(diagnosis: Diagnosis, job: JobSnapshot | None = None) -> str:
    """The document; without calls and without a snapshot, only the instant of the hang. Times in microseconds."""
    told = [r for r in job.ranks if r.journal is not None or (r.process and r.process.taken)] if job is not None else []
    most = max(1, _MOST_CALLS // max(1, len(told)))
    ranks = [_Tracks(rank, most) for rank in told]
    begun = min(itertools.chain.from_iterable(rank.begins for rank in ranks), default=0)
    seen = [job.taken * 1e9 if job is not None else 0.0, *(rank.until for rank in ranks)]
    taken = max(_SHORTEST, (max(seen) - begun) / 1e3)
    events: list[Event] = []
    arrows: dict[_Collective, list[Event]] = {}
    for rank in ranks:
        drawn = list(rank.slices(begun, taken))
        events += rank.names()
        for call, slice_ in drawn:
            events.append(slice_)
            if isinstance(call, Call):
                arrows.setdefault((rank.group(call.group).key, call.sequence), []).append(slice_)
        events += rank.phases(begun, taken)
        events += rank.tests(begun)
        events += rank.parted(diagnosis, drawn)
    events += _flows(arrows)
    verdict = harmless(f"{diagnosis.outcome}: {diagnosis.verdict}")
    events.append({"name": verdict, "ph": "i", "s": "g", "ts": taken, "pid": 0, "tid": 0})
    facts = {"verdict": harmless(diagnosis.verdict), "ends": _ENDS}
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": facts}) + "\n"


_Drawn = Sequence[tuple[Call | PointToPoint, Event]]
"""Calls with their slices."""


class _Tracks:
    """One rank's process in the viewer: a track for each group, and one for each thread's training steps.

    Where calls of a group overlap, as on GPUs, to which a rank issues calls ahead, the group has further tracks: the
    slices of one track must lie side by side or inside each other. Example: #1 from 0 to 5, #2 from 3 to 8, #3 from 6
    to 9 → #1 and #3 on the first track, #2 on the second.
    """

    def __init__(self, rank: RankSnapshot, most: int) -> None:
        """``most``: calls that are drawn, the newest."""
        self.rank = rank
        self._journal = journal = rank.journal or Journal("")
        calls: list[Call | PointToPoint] = [*journal.calls, *journal.point_to_points]
        self._calls = sorted((call for call in calls if call.created_ns), key=lambda call: call.created_ns)[-most:]
        self._groups = {group.name: group for group in journal.groups}
        groups = dict.fromkeys([*self._groups, *(call.group for call in calls)])
        self._lanes = {name: [_Lane(number)] for number, name in enumerate(groups, 1)}
        threads = dict.fromkeys(phase.thread_id for phase in journal.phases)
        self._steps = {thread: number for number, thread in enumerate(threads, 1 + len(groups))}
        self._tests = 1 + len(groups) + len(threads)
        self._taken = _known(rank.process) if rank.process is not None else []
        self._next = 1 + self._tests

    @property
    def begins(self) -> Iterator[int]:
        """When its calls and the parts of its steps began, in Unix ns."""
        yield from (call.created_ns for call in self._calls[:1])
        yield from (phase.begun_ns for phase in self._journal.phases)
        yield from (taken.at_ns for taken, _ in self._taken)

    @property
    def until(self) -> int:
        """When the rank was last seen to wait, in Unix ns: when its dump was written, if PyTorch would have let it wait
        so long (a copy of the file may be of any time); 0 where the moment of the look says it."""
        ends = [call.created_ns + call.timeout_ms * 10**6 for call in self._calls if not call.completed]
        return max(self._journal.latest_ns, min(self._journal.written_ns, *ends)) if ends else self._journal.latest_ns

    def group(self, name: str) -> ProcessGroup:
        """The group of that name, whose members may be unknown."""
        return self._groups.get(name) or ProcessGroup(name, ())

    def parted(self, diagnosis: Diagnosis, drawn: _Drawn) -> Iterator[Event]:
        """The instants at which the rank diverged from the others."""
        for side in diagnosis.divergence.sides if diagnosis.divergence is not None else ():
            if self.rank.rank not in side.ranks:
                continue
            alike = [
                (side.group in (call.group, self.group(call.group).description), slice_)
                for call, slice_ in drawn
                if isinstance(call, Call) and (call.sequence, call.op) == (side.sequence, side.op)
            ]
            if alike:
                _, at = max(alike, key=itemgetter(0))
                yield {"name": "diverged", "ph": "i", "s": "t", "ts": at["ts"], "pid": at["pid"], "tid": at["tid"]}

    def _track_name(self, name: str) -> str:
        """What a group is called on its track, with its members: the same on all ranks."""
        group = self.group(name)
        members = f" {list(group.members)}" if 0 < len(group.members) < _MOST_MEMBERS else ""
        return f"{group.description or name}{members}"

    def names(self) -> Iterator[Event]:
        """What the process and its tracks are called, once the slices are drawn."""
        rank = self.rank
        pid = f", pid {rank.process.pid}" if rank.process is not None else ""
        where = f" on {rank.host}" if rank.host else ""
        whose = ", with the times of a rank that did the same" if self._journal.issued_at else ""
        yield _metadata("process_name", rank.rank, 0, harmless(f"rank {rank.rank}{where}{pid}{whose}"))
        yield {"name": "process_sort_index", "ph": "M", "pid": rank.rank, "args": {"sort_index": rank.rank}}
        for name, lanes in self._lanes.items():
            for number, lane in enumerate(lanes, 1):
                more = f", {number} at once" if number > 1 else ""
                yield _metadata("thread_name", rank.rank, lane.track, harmless(self._track_name(name)) + more)
        for number in self._steps.values():
            yield _metadata("thread_name", rank.rank, number, "step")
        if self._taken:
            yield _metadata("thread_name", rank.rank, self._tests, "tests of the main thread")

    def slices(self, begun: int, taken: float) -> Iterator[tuple[Call | PointToPoint, Event]]:
        """Each call with its slice, in the order in which they were issued."""
        for number, call in enumerate(self._calls):
            start = (call.created_ns - begun) / 1e3
            following = (self._calls[number + 1].created_ns - begun) / 1e3 if number + 1 < len(self._calls) else taken
            end = following if call.completed else taken
            if call.completed and call.completed_ns >= call.created_ns:
                end = (call.completed_ns - begun) / 1e3
            track, until = self._place(call.group, start, end)
            arguments = _arguments(self.rank, call) | ({"end": "cut short"} if until < end else {})
            slice_ = {
                "name": harmless(_name(call)),
                "cat": "collective" if isinstance(call, Call) else "message",
                "ph": "X",
                "ts": start,
                "dur": max(_SHORTEST, until - start),
            }
            yield call, {**slice_, "pid": self.rank.rank, "tid": track, "args": arguments}

    def _place(self, group: str, start: float, end: float) -> tuple[int, float]:
        """(track, end) of a slice: it is cut short where no track of the group has room."""
        lanes = self._lanes[group]
        for lane in lanes:
            if lane.takes(start, end):
                return lane.track, end
        if len(lanes) < _MOST_LANES:
            lanes.append(_Lane(self._next))
            self._next += 1
        else:
            end = lanes[-1].ends[-1]
        lanes[-1].takes(start, end)
        return lanes[-1].track, end

    def phases(self, begun: int, taken: float) -> Iterator[Event]:
        """The parts of training steps, on tracks of their own: a thread each, since threads overlap."""
        for phase in self._journal.phases:
            start = (phase.begun_ns - begun) / 1e3
            end = (phase.ended_ns - begun) / 1e3 if phase.ended_ns else taken
            slice_ = {
                "name": harmless(phase.name),
                "cat": "phase",
                "ph": "X",
                "ts": start,
                "dur": max(_SHORTEST, end - start),
            }
            yield {**slice_, "pid": self.rank.rank, "tid": self._steps[phase.thread_id], "args": {}}

    def tests(self, begun: int) -> Iterator[Event]:
        """How the last tests of the main thread came out, each an instant."""
        for taken, branch in self._taken:
            place = f"{branch.file.rpartition('/')[2]}:{branch.line} {branch.function}()"
            instant = {"name": harmless(f"{place} {WORDS[taken.value]}"), "cat": "test", "ph": "i", "s": "t"}
            yield {**instant, "ts": (taken.at_ns - begun) / 1e3, "pid": self.rank.rank, "tid": self._tests}


def _known(process: Process) -> list[tuple[Taken, BranchCounts]]:
    """The last tests of the main thread, without what no probe says."""
    branches = range(len(process.branches))
    known = (each for each in process.taken if each.branch in branches and each.value in WORDS and each.at_ns > 0)
    return [(each, process.branches[each.branch]) for each in known]


class _Lane:
    """A track while it is filled: when the slices end that are open on it, the outermost first."""

    def __init__(self, track: int) -> None:
        self.track = track
        self.ends: list[float] = []

    def takes(self, start: float, end: float) -> bool:
        """Put a slice here that begins no earlier than those before, if it overlaps none of them in part."""
        while self.ends and self.ends[-1] <= start:
            self.ends.pop()
        fits = not self.ends or end <= self.ends[-1]
        if fits:
            self.ends.append(end)
        return fits


def _name(call: Call | PointToPoint) -> str:
    if isinstance(call, Call):
        return f"{call.op} #{call.sequence}"
    return f"{call.op} rank {call.peer}" if call.peer >= 0 else call.op


def _arguments(rank: RankSnapshot, call: Call | PointToPoint) -> dict[str, Any]:
    stacks = rank.journal.stacks if rank.journal is not None else ()
    stack = stacks[call.stack] if 0 <= call.stack < len(stacks) else ()
    found: dict[str, Any] = {"state": call.state or ("completed" if call.completed else "waits")}
    if stack:
        found["stack"] = [harmless(f"{frame.function} ({frame.file}:{frame.line})") for frame in stack[:12]]
    if call.duration_ns:
        found["on the GPU, ms"] = call.duration_ns / 1e6
    if call.completed and not call.completed_ns:
        found["end"] = "not recorded"
    if isinstance(call, Call) and call.input_sizes:
        found["sizes"] = [list(size) for size in call.input_sizes]
    return found


def _metadata(kind: str, pid: int, tid: int, name: str) -> Event:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def _flows(arrows: dict[_Collective, list[Event]]) -> Iterator[Event]:
    """Arrows from the rank that issued a collective first to the others, in the order in which they followed."""
    for number, slices in enumerate(arrows.values(), 1):
        if len(slices) < 2:
            continue
        ordered = sorted(slices, key=lambda slice_: float(slice_["ts"]))
        for place, slice_ in enumerate(ordered):
            kind = "s" if place == 0 else "f" if place == len(ordered) - 1 else "t"
            yield {
                "name": "collective",
                "cat": "collective",
                "ph": kind,
                "id": number,
                "ts": slice_["ts"],
                "pid": slice_["pid"],
                "tid": slice_["tid"],
                **({"bp": "e"} if kind == "f" else {}),
            }
