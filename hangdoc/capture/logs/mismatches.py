"""What torch and NCCL write when ranks make different calls: fingerprints of TORCH_DISTRIBUTED_DEBUG=DETAIL,
torchfrtrace's mismatches, and the calls that NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=COLL lists.

Example: '… Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=772, OpType=ALLREDUCE, TensorShape=[8],
…), but Rank 2 is running collective: CollectiveFingerPrint(…TensorShape=[6]…' → two ``Call``s, of ranks 1 and 2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from hangdoc.capture.logs.lines import Line
from hangdoc.capture.logs.sift import Marker
from hangdoc.model.logged import Behind, Call, Member, Place, Raised, Refused
from hangdoc.model.process import Frame

MARKERS = (
    Marker(b"CollectiveFingerPrint("),
    Marker(b"op.preamble.length"),
    Marker(b"Not all ranks joining", after=40),
    Marker(b" at entry ", after=40),
    Marker(b"opCount "),
    Marker(b"ncclCommInit"),
)

_FINGERPRINT = re.compile(
    r"Rank (?P<rank>\d{1,6}) is running (?:inconsistent )?collective: CollectiveFingerPrint\("
    r"(?:SequenceNumber=(?P<sequence>\d{1,18}))?(?:, )?OpType=(?P<op>\w{1,40})"
    r"(?P<rest>(?:, TensorShape=\[(?P<shape>[\d, ]*)\])?"
    r"(?:, TensorDtypes=(?P<dtype>[\w, ]*?)(?=, Tensor|\)))?)"
)
_CALLED = re.compile(
    r"NCCL INFO (?P<op>[A-Z]\w{1,30}): opCount (?P<number>[0-9a-f]{1,16}) .{0,200}?count (?P<count>\d{1,20}) "
    r"datatype (?P<type>\d{1,3}) op (?P<reduction>\d{1,3}) root (?P<root>\d{1,6}) comm (?P<comm>0x[0-9a-f]{1,16})"
    r"(?: \[nranks=(?P<size>\d{1,6})\])?"
)
_INIT = re.compile(
    r"comm (?P<comm>0x[0-9a-f]{1,16}) rank (?P<rank>\d{1,6}) nranks (?P<size>\d{1,6})"
    r".{0,200}?commId (?P<id>0x[0-9a-f]{1,32})"
)
_PROCESS = re.compile(r"(?P<host>[\w.-]{1,100}):(?P<pid>\d{1,9}):\d{1,9} \[")
_REFUSED = re.compile(r"op\.preamble\.length <= op\.nbytes\.? ?(\d{1,18}) vs (\d{1,18})")
_ROOTED = ("Broadcast", "Reduce", "Gather", "Scatter")
_LAST_CALLS = 64
"""Of a process in a communicator; the last are what a hang is about."""


def fingerprints(lines: Sequence[Line], raised: Sequence[Raised] = ()) -> Iterator[Call]:
    """The two fingerprints of each report of a mismatch, the speaker's own with the stack of its exception
    (``raised``).

    One with the number 0 and no tensors stands for no call: that rank's data never came.
    """
    stacks = {each.rank: each.stack for each in raised if "CollectiveFingerPrint" in each.error}
    for line in lines:
        for found in _FINGERPRINT.finditer(line.text) if "FingerPrint" in line.text else ():
            yield Call(
                Place(line.file, line.number, "DETAIL"),
                (int(found["rank"]),),
                "",
                int(found["sequence"] or -1),
                found["op"],
                (found["shape"] or "").replace(" ", ""),
                found["dtype"] or "",
                empty=not found["rest"] and int(found["sequence"] or 0) == 0,
                stack=stacks.get(int(found["rank"]), ()),
            )


def refusals(lines: Sequence[Line], rank_of: Callable[[Line], int | None]) -> Iterator[Refused]:
    """The pieces that gloo refused: 'op.preamble.length <= op.nbytes. 256 vs 192'."""
    for line in lines:
        found = _REFUSED.search(line.text) if "op.preamble" in line.text else None
        if found is not None:
            place = Place(line.file, line.number, "gloo")
            rank = line.rank if line.rank is not None else rank_of(line)
            yield Refused(place, rank, int(found[1]), int(found[2]))


def torchfrtrace(lines: Sequence[Line]) -> Iterator[Behind | Call]:
    """What `torchfrtrace` prints of one call: which ranks are missing, or what each put in.

    Its culprits are those that differ from the first rank that it looked at; both sides are told here alike.
    """
    block: dict[str, Line] = {}
    stack: list[Frame] = []
    for line in lines:
        text = line.body.strip()
        head, _, value = text.partition(": ")
        if head.startswith(("Not all ranks joining collective", "Collective ")) and (
            "sequence number" in text or "errors" in text
        ):
            yield from _of_block(block, tuple(stack))
            block, stack = {"head": line}, []
        elif block and value and head in _KEYS:
            block[head] = line
        elif block and (frame := _AT.match(text)) is not None:
            stack.append(Frame(frame["file"], int(frame["line"]), frame["function"]))
    yield from _of_block(block, tuple(stack))


_KEYS = frozenset(
    (
        "group info",
        "collective",
        "missing ranks",
        "input sizes",
        "output sizes",
        "world size",
        "expected ranks",
        "error msg",
    )
)
_AT = re.compile(r"(?P<function>\S{1,200}) at (?P<file>\S.{0,999}):(?P<line>\d{1,7})$")
_CULPRIT = re.compile(
    r"Culprit rank (\d{1,6}); Error type: (\w{1,60})(?:, Expected (?:input |output )?(\w{1,20}): '([^']{0,200})' "
    r"does not match found (?:input |output )?\w{1,20}: '([^']{0,200})')?"
)


def _of_block(block: dict[str, Line], stack: tuple[Frame, ...]) -> Iterator[Behind | Call]:
    if "head" not in block:
        return
    value = {key: line.body.strip().partition(": ")[2] for key, line in block.items()}
    head = block["head"]
    place = Place(head.file, head.number, "torchfrtrace")
    number = re.search(r"(?:sequence number: |Collective )(\d{1,18})", head.text)
    sequence = int(number[1]) if number else -1
    group = value.get("group info", "").partition(":")
    name = group[0] + (f"({group[2]})" if group[2] else "")
    op = value.get("collective", "").rpartition(":")[2]
    expected = _ranks(value.get("expected ranks", ""))
    missing = _ranks(value.get("missing ranks", ""))
    if missing:
        joined = tuple(r for r in expected if r not in missing)
        yield Behind(place, name, sequence, op, missing, joined, whole=bool(expected), stack=stack)
        return
    different = {int(found[1]): found for found in _CULPRIT.finditer(value.get("error msg", ""))}
    if not different:
        return
    alike = tuple(r for r in expected if r not in different)
    yield Call(place, alike, name, sequence, op, _plain(value.get("input sizes", "")), stack=stack)
    for said, ranks in groupby(sorted(different, key=lambda r: (different[r][5] or "", r)), lambda r: different[r][5]):
        yield Call(place, tuple(ranks), name, sequence, op, _plain(said or ""), stack=stack)


def _ranks(text: str) -> tuple[int, ...]:
    return tuple(sorted({int(n) for n in re.findall(r"\d{1,6}", text)}))


def _plain(sizes: str) -> str:
    """'2049' of '[[2049]]'."""
    return sizes.replace(" ", "").strip("[]").replace("],[", " ")


def nccl_calls(lines: Sequence[Line]) -> Iterator[Call | Member]:
    """The last calls of each process in each communicator, numbered as NCCL counts them; where its counter stands still
    (NCCL 2.27 on one node), by the order of the lines. Ranks are those of the communicator (its id names the group)."""
    known: dict[tuple[str, str], tuple[str, int, int]] = {}
    called: dict[tuple[str, str], list[tuple[Line, re.Match[str]]]] = {}
    for line in lines:
        if "NCCL INFO" not in line.text:
            continue
        process = _PROCESS.search(line.text)
        owner = f"{process['host']}:{process['pid']}" if process is not None else line.file
        begun = _INIT.search(line.text)
        if begun is not None:
            known[(owner, begun["comm"])] = (begun["id"], int(begun["rank"]), int(begun["size"]))
        found = _CALLED.search(line.text)
        if found is not None:
            called.setdefault((owner, found["comm"]), []).append((line, found))
    for key, calls in called.items():
        if key not in known:
            continue
        name, rank, size = known[key]
        yield Member(Place(calls[0][0].file, calls[0][0].number, "NCCL"), name, rank, rank, size)
        stands = len({found["number"] for _, found in calls}) == 1 and len(calls) > 1
        for order, (line, found) in list(enumerate(calls))[-_LAST_CALLS:]:
            yield Call(
                Place(line.file, line.number, "NCCL"),
                (rank,),
                name,
                order if stands else int(found["number"], 16),
                found["op"],
                found["count"],
                found["type"],
                found["root"] if found["op"] in _ROOTED else "",
            )
