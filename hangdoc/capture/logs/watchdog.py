"""What ProcessGroupNCCL writes: overdue calls, how far a rank is in its groups, who answered a call for dumps.

The lines changed with almost every torch; the formats read here are those of 1.8 to 2.14. A record stands anywhere in a
line, and a line may hold two. That of the overdue call names no group before its rank dies: the group is that of the
line about the same call of the same rank.

Example: '[rank5]:[E… [PG ID 1 PG GUID 9(tp) Rank 1]  failure detected by watchdog at work sequence id: 388 PG status:
last enqueued work: 391, last completed work: 387' → global rank 5, member 1 of group '9(tp)', 388, 391, 387.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from hangdoc.capture.logs.lines import FRONT, Line, rank_before, time_of
from hangdoc.capture.logs.sift import Marker
from hangdoc.model.logged import Alive, Member, Overdue, Place, Progress
from hangdoc.model.process import Frame, Stack

MARKERS = (
    Marker(b"WorkNCCL("),
    Marker(b"ProcessGroupNCCL.cpp"),  # all other lines of the watchdog have it in front
    Marker(b"Stack trace of the failed", after=40),
)

_RECORD = re.compile(
    r"WorkNCCL\((?:SeqNum=(?P<sequence>\d{1,18}), )?OpType=(?P<op>\w{1,40})"
    r"(?:, NumelIn=(?P<numel_in>\d{1,20}), NumelOut=(?P<numel_out>\d{1,20}))?, Timeout\(ms\)=(?P<timeout>\d{1,15})\)"
    r"(?: ran for (?P<ran>\d{1,15}) milliseconds before timing out| timed out in blocking wait)?"
)
_GROUP = re.compile(
    r"\[(?:PG ID (?P<id>\d{1,9}) PG GUID (?P<guid>[^\s()]{1,200})(?:\((?P<about>[^()]{0,200})\))?"
    r"|PG (?P<name>[^\s()]{1,200})(?: ?\((?P<description>[^()]{0,200})\))?) Rank (?P<member>\d{1,6})\]"
)
_MEMBER = re.compile(r"\[Rank (\d{1,6})\]")
_PROGRESS = re.compile(
    r"(?:Timeout at NCCL work: |detected by watchdog at work(?: sequence id)?: )(?P<at>\d{1,18})"
    r"(?:, last enqueued NCCL work: (?P<e1>-?\d{1,18}), last completed NCCL work: (?P<c1>-?\d{1,18})"
    r"| PG status: last enqueued work: (?P<e2>-?\d{1,18})(?:, last started work: (?P<started>-?\d{1,18})(?: \(\w*\))?)?"
    r", last completed work: (?P<c2>-?\d{1,18}))"
)
_SIGNAL = re.compile(
    r"Received a dump signal(?: due to a collective timeout)?"
    r"(?: from +(?P<own>this local rank)| from +rank (?P<caller>\d{1,6}))?"
)
_OF_DEFAULT = re.compile(r"Last enqueued NCCL work: (-?\d{1,18}), last completed NCCL work: (-?\d{1,18})")
_STUCK = re.compile(r"watchdog got stuck for|Heartbeat monitor timed out")
_OBSERVED = "Observed flight recorder dump signal"
_OPTIONS = re.compile(r"initialization options: size: (\d{1,6}), global rank: (\d{1,6})")
_FRAME = re.compile(r"#\d{1,4} (?P<function>\S{1,300}) from (?P<file>\S.{0,999}):(?P<line>\d{1,7})$")
_MOST_RECORDS = 8
"""In one line, where several ranks write at a time; judgement."""
_UNKNOWN = (1 << 64) - 1
"""A size that was never set: -1 as size_t."""


@dataclass
class Watchdog:
    """The facts of one text, in the order of its lines."""

    overdue: list[Overdue] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)
    alive: list[Alive] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)


def read_watchdog(lines: Sequence[Line], year: int, rank_of: Callable[[Line, int, int], int | None]) -> Watchdog:
    """The facts in ``lines``. ``year``: of torch's times, which have none.

    ``rank_of(line, at, member)`` is the global rank of who speaks at that place of the line, where torch does not say
    it; ``member`` is the record's own [Rank k], -1 where it has none.
    """
    found = Watchdog()
    frames_of: int | None = None
    """Place in ``overdue`` of the call whose stack is being told."""
    for line in lines:
        if frames_of is not None:
            frame = _FRAME.match(line.body.strip())
            if frame is not None:
                _add_frame(found.overdue, frames_of, Frame(frame["file"], int(frame["line"]), frame["function"]))
                continue
        if "Stack trace of the failed" in line.text and "not found" not in line.text:
            frames_of = _last_of(found.overdue, line)
            continue
        for record in _records(line, year, rank_of):
            if isinstance(record, Overdue):
                found.overdue.append(record)
            elif isinstance(record, Progress):
                found.progress.append(record)
            elif isinstance(record, Alive):
                found.alive.append(record)
            else:
                found.members.append(record)
    found.overdue = _distinct(_with_groups(found.overdue, found.progress))
    return found


def _records(
    line: Line, year: int, rank_of: Callable[[Line, int, int], int | None]
) -> Iterator[Overdue | Progress | Alive | Member]:
    text = line.text
    place = Place(line.file, line.number, "watchdog")
    for record in islice(_RECORD.finditer(text), _MOST_RECORDS) if "WorkNCCL(" in text else ():
        group, member = _group_before(text, record.start())
        rank = rank_before(text, record.start())
        yield Overdue(
            place,
            rank if rank is not None else rank_of(line, record.start(), member),
            group,
            int(record["sequence"]) if record["sequence"] else -1,
            record["op"],
            member,
            _size(record["numel_in"]),
            _size(record["numel_out"]),
            int(record["timeout"]),
            int(record["ran"] or 0),
            time_of(text, year, record.start()),
        )
    for record in islice(_PROGRESS.finditer(text), _MOST_RECORDS) if "last enqueued" in text else ():
        group, member = _group_before(text, record.start())
        rank = rank_before(text, record.start())
        yield Progress(
            place,
            rank if rank is not None else rank_of(line, record.start(), member),
            group,
            int(record["e1"] or record["e2"]),
            int(record["c1"] or record["c2"]),
            int(record["started"] or -1),
            int(record["at"]),
            member,
            time_of(text, year, record.start()),
        )
    yield from _signals(line, year, rank_of)
    spoken = _GROUP.search(text) if "PG " in text and line.rank is not None else None
    if spoken is not None and line.rank is not None:
        yield Member(place, _group_before(text, spoken.end())[0], int(spoken["member"]), line.rank)
    for record in _OPTIONS.finditer(text) if "initialization options" in text else ():
        group, member = _group_before(text, record.start())
        if group and member >= 0:
            yield Member(place, group, member, int(record[2]), int(record[1]))


def _signals(line: Line, year: int, rank_of: Callable[[Line, int, int], int | None]) -> Iterator[Alive | Progress]:
    text = line.text
    stuck = _STUCK.search(text)
    if stuck is not None:
        group, member = _group_before(text, stuck.start())
        spoken = rank_before(text, stuck.start())
        rank = spoken if spoken is not None else rank_of(line, stuck.start(), member)
        when = time_of(text, year, stuck.start())
        yield Alive(Place(line.file, line.number, "watchdog"), rank, own=True, at=when, stuck=True)
        return
    if "dump signal" not in text:
        return
    found = _SIGNAL.search(text)
    at = found.start() if found is not None else text.find(_OBSERVED)
    if at < 0:
        return
    place = Place(line.file, line.number, "watchdog")
    group, member = _group_before(text, at)
    spoken = rank_before(text, at)
    rank = spoken if spoken is not None else rank_of(line, at, member)
    when = time_of(text, year, at)
    caller = int(found["caller"]) if found is not None and found["caller"] else None
    yield Alive(place, rank, caller, found is not None and bool(found["own"]), when)
    # The heartbeat thread is the default group's, and so are its numbers.
    counts = _OF_DEFAULT.search(text, at)
    if counts is not None and group:
        yield Progress(place, rank, group, int(counts[1]), int(counts[2]), member=member, at=when)


def _group_before(text: str, at: int) -> tuple[str, int]:
    """(group, member) of the nearest prefix before that place; ('', member) where only [Rank k] stands there."""
    found = None
    for found in _GROUP.finditer(text, max(0, at - FRONT), at):  # noqa: B007
        pass
    member = None
    for member in _MEMBER.finditer(text, found.end() if found is not None else max(0, at - FRONT), at):  # noqa: B007
        pass
    if found is None:
        return "", int(member[1]) if member is not None else -1
    about = found["about"] or found["description"] or ""
    about = "" if about == "undefined" else about  # c10d's word for a group without a description
    return (found["guid"] or found["name"]) + (f"({about})" if about else ""), int(found["member"])


def _size(text: str | None) -> int:
    return -1 if text is None or int(text) >= _UNKNOWN else int(text)


def _last_of(overdue: list[Overdue], line: Line) -> int | None:
    """The place of the last overdue call of who speaks in ``line``."""
    if line.rank is None:
        return None
    return next((i for i in range(len(overdue) - 1, -1, -1) if overdue[i].rank == line.rank), None)


def _add_frame(overdue: list[Overdue], at: int, frame: Frame) -> None:
    stack: Stack = overdue[at].stack
    if frame not in stack and len(stack) < 64:
        overdue[at] = replace(overdue[at], stack=(*stack, frame))


def _with_groups(overdue: Sequence[Overdue], progress: Sequence[Progress]) -> list[Overdue]:
    """Each overdue call in the group in which its rank reports that number, where just one is."""
    groups: dict[tuple[int | None, int], dict[str, int]] = defaultdict(dict)
    for each in progress:
        if each.group:
            groups[(each.rank, each.sequence)][each.group] = each.member
    return [_in_one(call, groups.get((call.rank, call.sequence), {})) for call in overdue]


def _in_one(call: Overdue, groups: Mapping[str, int]) -> Overdue:
    """``groups``: those of this number, and the rank's place in each."""
    if call.group or call.sequence < 0:
        return call
    same = [group for group, member in groups.items() if len(groups) == 1 or member == call.member]
    return replace(call, group=same[0]) if len(same) == 1 else call


def _distinct(overdue: list[Overdue]) -> list[Overdue]:
    """Each overdue call once: a rank tells it again when its watchdog dies, then often without saying who it is. The
    first telling has the time, a later one may have the group or the stack."""
    ranked: dict[tuple[str, int], int | None] = {}
    for c in overdue:
        if c.rank is not None and c.group and ranked.setdefault((c.group, c.member), c.rank) != c.rank:
            ranked[c.group, c.member] = None  # the name stands for several groups
    told = {(c.member, c.sequence, c.op) for c in overdue if c.rank is not None}
    kept: dict[tuple[object, ...], Overdue] = {}
    groups: dict[tuple[object, ...], list[str]] = defaultdict(list)
    """Key without the group → the groups in which it was told."""
    for telling in overdue:
        rank = telling.rank if telling.rank is not None else ranked.get((telling.group, telling.member))
        if rank is None and (telling.member, telling.sequence, telling.op) in told:
            continue
        call = replace(telling, rank=rank)
        who = (call.place.file, call.member) if call.rank is None else call.rank
        key = (who, call.sequence, call.op, call.numel_in)
        own = groups[key]
        before = next((group for group in own if group == call.group or "" in (group, call.group)), None)
        if before is None:
            own.append(call.group)
            kept[(*key, call.group)] = call
            continue
        first = kept.pop((*key, before))
        group = first.group or call.group
        own[own.index(before)] = group
        kept[(*key, group)] = replace(
            first,
            group=group,
            member=first.member if first.member >= 0 else call.member,
            stack=first.stack or call.stack,
            ran_ms=first.ran_ms or call.ran_ms,
            at=first.at or call.at,
        )
    return list(kept.values())
