"""What NCCL's RAS service answers, read without trusting it: JSON since NCCL 2.28.7, before that text for people.

Read off src/ras/client_support.cc of NCCL 2.24.3 and 2.30.7. Only what both have is taken: who
does not answer, and how many operations of which kind were launched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hangdoc.capture.safe.foreign import parse_json
from hangdoc.capture.safe.text import clean
from hangdoc.model.nccl import Communicator, CommunicatorMember, NcclStatus, OperationCount

_MOST_COMMUNICATORS = 64
"""Of an answer; chosen by hand."""
_MOST_MEMBERS = 32
"""Named of one set: of a larger one only the number is given. The limit is chosen by hand."""
_MOST_TEXT = 4 << 20
"""Of an answer in words: 40,000 lines, half a second; chosen by hand."""
_MOST_OPERATIONS = 16
"""Of a communicator; chosen by hand."""
_LARGEST = 1 << 62
_OPERATION = re.compile(r"[A-Za-z]{1,32}")
_HASH = re.compile(r"(?:0x)?([0-9a-f]{1,32})")


def parse_status(text: str) -> NcclStatus:
    """The status in an answer to 'VERBOSE STATUS'. Raises ``ValueError`` where it is none."""
    return _from_json(text) if text.lstrip().startswith("{") else _from_text(text)


# JSON


def _from_json(text: str) -> NcclStatus:
    try:
        document = parse_json(text.encode())
    except RecursionError:
        raise ValueError("its answer is nested too deeply") from None
    listed = document.get("communicators") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise ValueError("its answer lists no communicators")  # noqa: TRY004 - it is their fault, not ours
    found = [each for item in listed if (each := _communicator(item)) is not None]
    return NcclStatus(tuple(found[:_MOST_COMMUNICATORS]), len(listed))


def _communicator(item: Any) -> Communicator | None:
    """The communicator, if something differs in it."""
    name = _HASH.fullmatch(str(_of(item, "hash"))[:40])
    if name is None:
        return None
    silent = [_member(each) for each in _items(item, "missing_ranks") if _is_silent(each)]
    counts = tuple(_differing([(_member(each), _of(each, "collective_counts")) for each in _items(item, "ranks")]))
    if not silent and not counts:
        return None
    return Communicator(name[1], _number(_of(item, "size")) or 0, tuple(silent[:_MOST_MEMBERS]), len(silent), counts)


def _is_silent(missing: Any) -> bool:
    """False for a rank that answers, and is only no member any more."""
    status = _of(missing, "status")
    return _of(status, "unresponsive") is True or _of(status, "considered_dead") is True


def _differing(ranks: list[tuple[CommunicatorMember, Any]]) -> Iterator[OperationCount]:
    """The counts of each operation that differ. ``ranks``: each member with its number of each operation."""
    operations = dict.fromkeys(
        name for _, counts in ranks if isinstance(counts, dict) for name in counts if _OPERATION.fullmatch(str(name))
    )
    for operation in list(operations)[:_MOST_OPERATIONS]:
        by_count: dict[int, list[CommunicatorMember]] = {}
        for member, counts in ranks:
            number = _number(_of(counts, operation))
            if number is not None:
                by_count.setdefault(number, []).append(member)
        if len(by_count) > 1:
            for number, members in sorted(by_count.items(), key=lambda each: (-len(each[1]), -each[0])):
                named = tuple(members) if len(members) <= _MOST_MEMBERS else ()
                yield OperationCount(operation, number, len(members), named)


def _member(item: Any) -> CommunicatorMember:
    number, pid = _number(_of(item, "rank")), _number(_of(item, "pid"))
    node = _of(item, "host")
    return CommunicatorMember(
        -1 if number is None else number, pid=pid, node=clean(node, 64) if isinstance(node, str) else ""
    )


def _of(item: Any, key: str) -> Any:
    return item.get(key) if isinstance(item, dict) else None


def _items(item: Any, key: str) -> list[Any]:
    found = _of(item, key)
    return found if isinstance(found, list) else []


def _number(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < _LARGEST else None


# Text

_GROUP = re.compile(r" *(\d+) +\d+ +\d+ +\d+(?:-\d+)? +(\d+) +\d+ +[A-Z]+ +[A-Z,]+")
_HEAD = re.compile(r"#(\d+)-\d+ \(([0-9a-f]+)\) ([A-Z]+)")
_SILENT = re.compile(r" +Missing communicator data from (\d+) ranks?")
_SILENT_NUMBERS = re.compile(r" +The missing ranks?: ([\d,]+)")
_DIFFERENT = re.compile(r" +Communicator ranks have different (collective|[A-Za-z]+) operation counts")
_SEVERAL = re.compile(r" +(\d+) ranks have (?:launched up to operation (\d+)|not launched any operations)")
_MEMBER = re.compile(
    r" +Rank (\d+)(?P<does> has (?:launched up to operation (?P<count>\d+)|not launched any operations))?"
    r" -- (?P<who>.*)"
)
_WHO = re.compile(r"GPU .*managed by process (\d+) on node (\S+)")


@dataclass(slots=True)
class _Draft:
    """A communicator of which not all lines have been read."""

    size: int
    silent: list[CommunicatorMember] = field(default_factory=list)
    silent_count: int = 0
    counts: list[OperationCount] = field(default_factory=list)
    members: dict[int, list[CommunicatorMember]] = field(default_factory=dict)
    """By the place in ``counts`` of the set that they belong to."""


# One branch for each kind of line that the service prints.
def _from_text(text: str) -> NcclStatus:
    if len(text) > _MOST_TEXT:
        raise ValueError(f"its answer has more than {_MOST_TEXT >> 20} MiB of text")
    if "Communicators" not in text:
        raise ValueError("its answer is not the status of a job")
    drafts: dict[str, _Draft] = {}
    sizes: dict[str, int] = {}
    seen = 0
    draft: _Draft | None = None
    section = ""
    for line in text.splitlines():
        if draft is None and (row := _GROUP.fullmatch(line.rstrip())):
            sizes[row[1]] = _within(row[2])
            seen += _within(line.split()[1])
        elif head := _HEAD.fullmatch(line.strip()):
            section = "silent" if head[3] == "INCOMPLETE" else ""
            name = head[2][:32]
            draft = drafts.get(name)
            if draft is None and len(drafts) < _MOST_COMMUNICATORS:
                draft = drafts[name] = _Draft(sizes.get(head[1], 0))
        elif draft is not None:
            section = _read_line(line, draft, section)
    found = (
        Communicator(name, each.size, tuple(each.silent[:_MOST_MEMBERS]), each.silent_count, _with_members(each))
        for name, each in drafts.items()
    )
    return NcclStatus(tuple(each for each in found if each.silent_count or each.counts), seen)


def _read_line(line: str, draft: _Draft, section: str) -> str:
    """Add what the line says to the draft, and return what the lines below it belong to: 'silent', an operation with a
    colon before it (':AllReduce'), or ''."""
    if silent := _SILENT.fullmatch(line):
        draft.silent_count = _within(silent[1])
        return "silent"
    if numbers := _SILENT_NUMBERS.fullmatch(line):
        draft.silent += [CommunicatorMember(_within(n)) for n in numbers[1].split(",")[:_MOST_MEMBERS] if n]
    elif different := _DIFFERENT.fullmatch(line):
        return ":" + ("" if different[1] == "collective" else different[1][:32])
    elif line.strip().startswith("Communicator ranks have different"):
        return ""  # their status, say
    elif section.startswith(":") and (several := _SEVERAL.fullmatch(line)):
        _count(draft, section[1:], _within(several[2] or "0"), _within(several[1]))
    elif member := _MEMBER.fullmatch(line):
        _add_member(member, draft, section)
    return section


def _add_member(line: re.Match[str], draft: _Draft, section: str) -> None:
    """Add a member to the silent ones, or to the set of members that the line before it counts."""
    who = _WHO.match(line["who"])
    named = CommunicatorMember(
        _within(line[1]),
        pid=_within(who[1]) if who else None,
        node=clean(who[2], 64) if who else "",
    )
    if section == "silent":
        draft.silent.append(named)
    elif section.startswith(":"):
        if line["does"]:
            _count(draft, section[1:], _within(line["count"] or "0"), 1)
        if draft.counts:
            draft.members.setdefault(len(draft.counts) - 1, []).append(named)


def _count(draft: _Draft, operation: str, count: int, how_many: int) -> None:
    if len(draft.counts) < _MOST_OPERATIONS * _MOST_MEMBERS:
        draft.counts.append(OperationCount(operation, count, how_many))


def _with_members(draft: _Draft) -> tuple[OperationCount, ...]:
    return tuple(
        OperationCount(each.operation, each.count, each.how_many, tuple(draft.members.get(place, ())[:_MOST_MEMBERS]))
        for place, each in enumerate(draft.counts)
    )


def _within(digits: str) -> int:
    """The number, or 0 where it has more digits than any that NCCL writes."""
    return int(digits) if len(digits) < 19 else 0
