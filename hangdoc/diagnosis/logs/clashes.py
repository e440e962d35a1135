"""Readings of calls that do not match: other operations, sizes, roots or lines at one place of a group's order.

Two ranks that put unequal things into one call are a proof that they differ, and of nothing more: who is to blame is
the one side that is smaller than all others together, and of two sides of one size both could be.

Example: of six ranks at #917 five are in ALLREDUCE and one in an all-gather → that one, likely.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from hangdoc.diagnosis.logs.known import Known
from hangdoc.diagnosis.logs.meetings import minority, needs_equal_sizes
from hangdoc.diagnosis.logs.reading import Reading, Strength, name_call, side, user_frame
from hangdoc.model.kinds import Confidence, Outcome
from hangdoc.model.logged import Call, Overdue
from hangdoc.model.logged import Place as Source
from hangdoc.model.message import Does, Message, Place, sentence
from hangdoc.model.process import Stack

_FIX: Mapping[str, Message] = {
    "HD104": "look at what decides the size on these ranks at that line (a batch, a mask, a bucket of parameters): "
    "agree on it first, or pad to one size",
    "HD105": "compute the root from what all ranks know alike",
    "HD106": "look at the branches before these calls: the ranks took different ones",
    "HD101": "look at the branches above these lines: the ranks took different ones",
}


@dataclass(frozen=True)
class _Put:
    """What one rank put into a call."""

    op: str
    sizes: str
    root: str
    stack: Stack
    source: Source


def clashes(known: Known) -> Iterator[Reading]:
    """Each call in which ranks differ, first those of overdue calls."""
    for meeting in known.meetings:
        if known.is_not_compared(meeting.key.group) or not meeting.key.numbered:
            continue
        found = _compared(
            {r: _of_overdue(c) for r, c in meeting.waiting.items()}, meeting.key.sequence, meeting.key.group
        )
        if found is not None:
            yield replace(found, meeting=meeting)
    for kind in dict.fromkeys(call.place.kind for call in known.logged.calls):
        found = _of_reports(known, [call for call in known.logged.calls if call.place.kind == kind and not call.empty])
        if found is not None:
            yield found


def refusals(known: Known) -> Iterator[Reading]:
    """A piece of another size than its receiver expected (HD104). Which of the two is wrong gloo does not know, and in
    a ring the receiver need not be one of them."""
    for each in known.logged.refused[:1]:
        who: Message = (
            [Does((each.rank,), "was", "were"), " aborted by gloo"] if each.rank is not None else "gloo aborted a rank"
        )
        yield Reading(
            Strength.CLASH,
            Outcome.CRASHED,
            sentence([who, f": it got a piece of {each.got} bytes where it expected {each.expected}"]),
            "HD104",
            why="the ranks put tensors of unequal sizes into one call, or paired unlike calls",
            fix="set TORCH_DISTRIBUTED_DEBUG=DETAIL once: it names the ranks and the shapes",
            sure="the sizes differ for certain; which rank is wrong, gloo does not say",
            sources=(each.place,),
        )


def _of_overdue(call: Overdue) -> _Put:
    sizes = str(call.numel_in) if call.numel_in >= 0 and needs_equal_sizes(call.op) else ""
    return _Put(call.op, sizes, "", call.stack, call.place)


def _of_reports(known: Known, calls: list[Call]) -> Reading | None:
    """The first call that differs, of one kind of report. Numbers of DETAIL are no place in the order: its sequence may
    differ by a fault of its own."""
    ordered: dict[tuple[str, int], dict[int, _Put]] = defaultdict(dict)
    for call in calls:
        sizes = call.sizes if needs_equal_sizes(call.op) or needs_equal_sizes(call.op.lower()) or call.dtype else ""
        put = _Put(call.op, f"{sizes} {call.dtype}".strip(), call.root, call.stack, call.place)
        key = ("", 0) if call.place.kind == "DETAIL" else (call.group, call.sequence)
        for rank in call.ranks:
            ordered[key].setdefault(rank, put)
    for (group, _), puts in sorted(ordered.items()):
        number = max(
            (c.sequence for c in calls if c.place.kind == "DETAIL" or (c.group, c.sequence) == (group, _)), default=-1
        )
        found = _compared(puts, number, "" if calls[0].place.kind == "NCCL" else group)
        if found is not None:
            ended = calls[0].place.kind == "DETAIL"
            return replace(found, outcome=Outcome.CRASHED) if ended and not known.logged.overdue else found
    return None


def _compared(puts: Mapping[int, _Put], sequence: int, group: str) -> Reading | None:
    """The reading of what ranks put into one call; None where it is alike."""
    ops = {put.op for put in puts.values()}
    sizes = {put.sizes for put in puts.values() if put.sizes}
    roots = {put.root for put in puts.values() if put.root}
    lines = {(f.file, f.line) for put in puts.values() if (f := user_frame(put.stack)) is not None}
    if len(ops) > 1:
        return _reading("HD106", puts, sequence, group, lambda put: put.op)
    if len(sizes) > 1:
        return _reading("HD104", puts, sequence, group, lambda put: put.sizes)
    if len(roots) > 1:
        return _reading("HD105", puts, sequence, group, lambda put: put.root)
    if len(lines) > 1 and all(user_frame(put.stack) is not None for put in puts.values()):
        return _reading("HD101", puts, sequence, group, lambda put: _line(put.stack))
    return None


def _line(stack: Stack) -> str:
    frame = user_frame(stack)
    return f"{frame.file}:{frame.line}" if frame is not None else ""


def _reading(code: str, puts: Mapping[int, _Put], sequence: int, group: str, what: Callable[[_Put], str]) -> Reading:
    """``what``: in what the ranks differ."""
    sides: dict[str, list[int]] = defaultdict(list)
    for rank, put in sorted(puts.items()):
        sides[what(put)].append(rank)
    odd = minority([frozenset(ranks) for ranks in sides.values()])
    ordered = sorted(sides.items(), key=lambda item: (len(item[1]), item[1]))
    first = puts[ordered[0][1][0]]
    usual = puts[ordered[-1][1][0]]
    clauses = [_clause(code, value, ranks, puts, sequence, group) for value, ranks in ordered]
    verdict = sentence(*clauses)
    culprits = tuple(sorted(odd)) if odd else ()
    doubt = "" if odd else "the ranks differ for certain; which side is wrong, a log does not say"
    return Reading(
        Strength.CLASH,
        Outcome.HANG,
        verdict,
        code,
        culprits,
        Confidence.LIKELY if odd and code != "HD101" else Confidence.POSSIBLE,
        () if odd else tuple(tuple(ranks) for ranks in sides.values()),
        why=_why(code, sequence, first, usual),
        fix=_FIX[code],
        sure=doubt or "that the calls differ is certain; the blame falls on the smaller side",
        sides=tuple(side(ranks, puts[ranks[0]].op, puts[ranks[0]].stack, group, sequence) for _, ranks in ordered),
        sources=tuple(puts[ranks[0]].source for _, ranks in ordered),
    )


def _clause(code: str, value: str, ranks: list[int], puts: Mapping[int, _Put], sequence: int, group: str) -> Message:
    put = puts[ranks[0]]
    where = at_line_of(put.stack)
    call = name_call(put.op, sequence, group)
    if code == "HD104":
        return [Does(tuple(ranks), "puts", "put"), f" {_in_words(value)} into {call}", where]
    if code == "HD105":
        return [Does(tuple(ranks), "names", "name"), f" rank {value} of the group as the root of {call}", where]
    return [Does(tuple(ranks), "waits", "wait"), f" in {call}", where]


def _in_words(sizes: str) -> str:
    """'88604672 elements', '[12, 4] elements (Float)'."""
    size, _, dtype = sizes.partition(" ")
    shape = f"[{size}]" if "," in size else size
    return f"{shape} elements" + (f" ({dtype})" if dtype else "")


def _why(code: str, sequence: int, odd: _Put, usual: _Put) -> Message:
    if code == "HD106":
        return f"at #{sequence} the orders of calls differ: {odd.op} against {usual.op}"
    if code == "HD104":
        return f"both are the same call of the same group, and it needs equal sizes ({odd.sizes} against {usual.sizes})"
    if code == "HD105":
        return "each root waits for the others, or none sends"
    return "all agree on the operation, and their programs issued it at different lines"


def at_line_of(stack: Stack) -> Message:
    """' at train.py:44 step()' of one stack."""
    frame = user_frame(stack)
    return [" at ", Place(frame.file, frame.line, frame.function)] if frame is not None else ""
