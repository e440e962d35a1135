"""The calls of all ranks on a time line, in the Trace Event Format that Perfetto and chrome://tracing open.

A rank is a process and a group a track. One collective's slices are joined by arrows over the ranks. The hang and the
calls at which the ranks diverged are instants.

Format: "Trace Event Format", docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (2016 and later).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.journal import Call, Journal, PointToPoint
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot
from hangdoc.model.wording import harmless

_MOST_CALLS = 200_000
"""Calls of one file; of more, each rank's last ones are kept. Perfetto takes a minute for a million."""
_SHORTEST = 1.0
"""Microseconds of a slice: one of length 0 cannot be clicked."""

Event = dict[str, Any]


def render(diagnosis: Diagnosis, job: JobSnapshot | None = None) -> str:
    """The document; without calls and without a snapshot, only the instant of the hang. Times in microseconds."""
    ranks = [rank for rank in job.ranks if rank.journal is not None] if job is not None else []
    most = max(1, _MOST_CALLS // max(1, len(ranks)))
    begun = min(itertools.chain.from_iterable(_begins(rank, most) for rank in ranks), default=0)
    taken = max(_SHORTEST, (job.taken * 1e6 if job is not None else 0) - begun / 1e3)
    events: list[Event] = []
    arrows: dict[tuple[str, int], list[Event]] = {}
    for rank in ranks:
        events += _names(rank)
        for call, slice_ in _slices(rank, most, begun, taken):
            events.append(slice_)
            if isinstance(call, Call):
                arrows.setdefault((_track(rank, call.group), call.sequence), []).append(slice_)
        events += _phases(rank, begun, taken)
    events += _flows(arrows)
    events += _instants(diagnosis, ranks, most, begun, taken)
    facts = {
        "verdict": harmless(diagnosis.verdict),
        "ends": "not recorded: a slice is drawn up to the rank's next call",
    }
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": facts}) + "\n"


def _calls(rank: RankSnapshot, most: int) -> list[Call | PointToPoint]:
    journal = rank.journal
    if journal is None:
        return []
    calls: list[Call | PointToPoint] = [*journal.calls, *journal.point_to_points]
    return sorted((call for call in calls if call.created_ns), key=lambda call: call.created_ns)[-most:]


def _begins(rank: RankSnapshot, most: int) -> Iterator[int]:
    yield from (call.created_ns for call in _calls(rank, most))
    yield from (phase.begun_ns for phase in (rank.journal.phases if rank.journal is not None else ()))


def _phases(rank: RankSnapshot, begun: int, taken: float) -> Iterator[Event]:
    """The parts of training steps, on tracks of their own: a thread each, since threads overlap."""
    phases = rank.journal.phases if rank.journal is not None else ()
    first = 1 + len(_numbers(rank))
    tracks = {thread: first + at for at, thread in enumerate(dict.fromkeys(phase.thread_id for phase in phases))}
    for number in tracks.values():
        yield _metadata("thread_name", rank.rank, number, "step")
    for phase in phases:
        start = (phase.begun_ns - begun) / 1e3
        end = (phase.ended_ns - begun) / 1e3 if phase.ended_ns else taken
        slice_ = {
            "name": harmless(phase.name),
            "cat": "phase",
            "ph": "X",
            "ts": start,
            "dur": max(_SHORTEST, end - start),
        }
        yield {**slice_, "pid": rank.rank, "tid": tracks[phase.thread_id], "args": {}}


def _slices(rank: RankSnapshot, most: int, begun: int, taken: float) -> Iterator[tuple[Call | PointToPoint, Event]]:
    calls = _calls(rank, most)
    numbers = _numbers(rank)
    for number, call in enumerate(calls):
        start = (call.created_ns - begun) / 1e3
        following = (calls[number + 1].created_ns - begun) / 1e3 if number + 1 < len(calls) else taken
        end = following if call.completed else taken
        yield (
            call,
            {
                "name": harmless(_name(call)),
                "cat": "collective" if isinstance(call, Call) else "message",
                "ph": "X",
                "ts": start,
                "dur": max(_SHORTEST, end - start),
                "pid": rank.rank,
                "tid": numbers.get(call.group, 0),
                "args": _arguments(rank, call),
            },
        )


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
    if isinstance(call, Call) and call.input_sizes:
        found["sizes"] = [list(size) for size in call.input_sizes]
    return found


def _numbers(rank: RankSnapshot) -> dict[str, int]:
    """Group → number of its track in the rank's process, from 1."""
    journal = rank.journal or Journal("")
    named = dict.fromkeys([group.name for group in journal.groups])
    named.update(dict.fromkeys(call.group for call in journal.calls))
    named.update(dict.fromkeys(message.group for message in journal.point_to_points))
    return {name: number for number, name in enumerate(named, 1)}


def _track(rank: RankSnapshot, name: str) -> str:
    """What a group is called on its track, with its members: the same on all of them."""
    journal = rank.journal or Journal("")
    group = next((group for group in journal.groups if group.name == name), None)
    if group is None:
        return name
    return (
        f"{group.description or name} {list(group.members)}" if len(group.members) < 16 else group.description or name
    )


def _names(rank: RankSnapshot) -> Iterator[Event]:
    pid = f", pid {rank.process.pid}" if rank.process is not None else ""
    where = f" on {rank.host}" if rank.host else ""
    yield _metadata("process_name", rank.rank, 0, harmless(f"rank {rank.rank}{where}{pid}"))
    yield {"name": "process_sort_index", "ph": "M", "pid": rank.rank, "args": {"sort_index": rank.rank}}
    for name, number in _numbers(rank).items():
        yield _metadata("thread_name", rank.rank, number, harmless(_track(rank, name)))


def _metadata(kind: str, pid: int, tid: int, name: str) -> Event:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def _flows(arrows: dict[tuple[str, int], list[Event]]) -> Iterator[Event]:
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


def _instants(diagnosis: Diagnosis, ranks: list[RankSnapshot], most: int, begun: int, taken: float) -> Iterator[Event]:
    verdict = harmless(f"{diagnosis.outcome}: {diagnosis.verdict}")
    yield {"name": verdict, "ph": "i", "s": "g", "ts": taken, "pid": 0, "tid": 0}
    by_rank = {rank.rank: rank for rank in ranks}
    for side in diagnosis.divergence.sides if diagnosis.divergence is not None else ():
        for number in side.ranks:
            rank = by_rank.get(number)
            calls = _calls(rank, most) if rank is not None else []
            at = next(
                (c for c in calls if isinstance(c, Call) and (c.sequence, c.op) == (side.sequence, side.op)), None
            )
            if rank is not None and at is not None:
                where = {"pid": number, "tid": _numbers(rank).get(at.group, 0)}
                yield {"name": "diverged", "ph": "i", "s": "t", "ts": (at.created_ns - begun) / 1e3, **where}
