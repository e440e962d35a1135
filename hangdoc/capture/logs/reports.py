"""What torch itself reports of who did not come: its desync report, monitored_barrier, the rendezvous.

Example: '[5] finished collective #401, but didn't join collective #402 (count from 1)' → rank 5 is behind #402. torch
notes a call after NCCL's function has returned, so such a rank may be inside the call: nothing here says that it never
made it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from hangdoc.capture.logs.lines import Line, time_of
from hangdoc.capture.logs.sift import Marker
from hangdoc.model.logged import BarrierWait, Behind, Place, SetUp

MARKERS = (
    Marker(b"Timeout at collective", after=80),
    Marker(b"lagging ranks"),
    Marker(b"monitoredBarrier", after=3),
    Marker(b"ncclUniqueId"),
    Marker(b"clients joined"),
)

_NOT_JOINED = re.compile(
    r"\[([\d, ]{1,4000})\] finished collective #(\d{1,18}), but didn't join collective #(\d{1,18})"
)
_LAGGING = re.compile(r"ranks \[([\d, ]{1,4000})\] are the lagging ranks")
_STATE = re.compile(r"#(\d{1,18}) (started|finished) ranks:")
_IN_STATE = re.compile(r"\[([\d, ]{1,4000})\] (started|finished) (\w{1,40})")
_FAILED_BARRIER = re.compile(r"Ranks? ([\d, ]{1,4000}) failed to pass monitoredBarrier")
_REACHED_BARRIER = re.compile(
    r"Rank (\d{1,6}) successfully reached monitoredBarrier, but received errors .{0,60}from rank (\d{1,6})"
)
_DIRECTION = re.compile(r"for (send|recv) operation to complete")
_UNIQUE_ID = re.compile(
    r"\[(\d{1,6})\] is setting up NCCL communicator and retr[ei]+ving ncclUniqueId from \[(\d{1,6})\]"
)
_CLIENTS = re.compile(r"waiting for clients\. (\d{1,6})/(\d{1,6}) clients joined")
_CONNECT = re.compile(r"while trying to connect to \(([^()]{1,200})\)")
_OF_SET_UP = ("ncclUniqueId", "clients joined", "trying to connect", "wait timeout after")
_KEYS = re.compile(r"wait timeout after \d{1,12}ms, keys: (\S{1,300})")


def desync_reports(lines: Sequence[Line]) -> Iterator[Behind]:
    """Each desync report: who is behind the earliest call that somebody has not joined, and who has joined it."""
    i = 0
    while i < len(lines):
        if "Timeout at collective" not in lines[i].text and "lagging ranks" not in lines[i].text:
            i += 1
            continue
        end = i + 1
        while end < len(lines) and end - i < 80 and _goes_on(lines[end]):
            end += 1
        yield from _desync(lines[i:end])
        i = end


def _goes_on(line: Line) -> bool:
    text = line.text
    return any(word in text for word in (" - ", "finished", "started", "joined", "ranks:")) and "WorkNCCL(" not in text


def _desync(block: Sequence[Line]) -> Iterator[Behind]:
    place = Place(block[0].file, block[0].number, "desync report")
    behind: dict[int, int] = {}
    """Rank → the first call that it has not joined."""
    reached: dict[int, tuple[int, str]] = {}
    for line in block:
        for found in _NOT_JOINED.finditer(line.text):
            behind |= dict.fromkeys(_numbers(found[1]), int(found[3]))
        for found in _LAGGING.finditer(line.text):
            behind |= dict.fromkeys(_numbers(found[1]), -1)
    state = 0
    for line in block:
        head = _STATE.search(line.text)
        if head is not None:
            state = int(head[1])
            continue
        listed = _IN_STATE.search(line.text)
        if listed is not None and state:
            reached |= dict.fromkeys(_numbers(listed[1]), (state, listed[3]))
    if not behind:
        return
    first = min(behind.values())
    late = tuple(sorted(r for r, n in behind.items() if n == first))
    joined = tuple(sorted(r for r, (n, _) in reached.items() if r not in behind and n >= first))
    ops = {op for r, (n, op) in reached.items() if r in joined and n == first}
    yield Behind(place, "", first, next(iter(ops)) if len(ops) == 1 else "", late, joined)


def barriers(lines: Sequence[Line]) -> Iterator[Behind | BarrierWait]:
    """monitored_barrier's words: rank 0 names who did not come, the others in what they waited for rank 0."""
    for i, line in enumerate(lines):
        if "monitoredBarrier" not in line.text:
            continue
        failed = _FAILED_BARRIER.search(line.text)
        if failed is not None:
            yield Behind(
                Place(line.file, line.number, "monitored_barrier"),
                "",
                -1,
                "monitored_barrier",
                _numbers(failed[1]),
                (0,),
            )
        reached = _REACHED_BARRIER.search(line.text)
        if reached is not None:
            rest = (each for each in lines[i : i + 4] if each.file == line.file and each.rank in (None, line.rank))
            direction = next((found[1] for each in rest if (found := _DIRECTION.search(each.text))), "")
            yield BarrierWait(
                Place(line.file, line.number, "monitored_barrier"), int(reached[1]), direction, int(reached[2])
            )


def set_ups(lines: Sequence[Line], year: int, rank_of: Callable[[Line], int | None]) -> Iterator[SetUp]:
    """Ranks that waited for the rendezvous, or for the id of a communicator, in vain."""
    for line in lines:
        if not any(word in line.text for word in _OF_SET_UP):
            continue
        place, at = Place(line.file, line.number, "rendezvous"), time_of(line.text, year)
        clients = _CLIENTS.search(line.text)
        unique = _UNIQUE_ID.search(line.text)
        connect = _CONNECT.search(line.text)
        keys = _KEYS.search(line.text)
        rank = line.rank if line.rank is not None else rank_of(line)
        if clients is not None:
            yield SetUp(place, "clients", rank, int(clients[1]), int(clients[2]), at=at)
        elif unique is not None:
            yield SetUp(place, "unique id", rank, int(unique[1]), target=unique[2], at=at)
        elif connect is not None:
            yield SetUp(place, "connect", rank, target=connect[1], at=at)
        elif keys is not None:
            yield SetUp(place, "keys", rank, target=keys[1], at=at)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(sorted({int(n) for n in re.findall(r"\d{1,6}", text)}))
