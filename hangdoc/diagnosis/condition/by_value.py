"""The decision that parted the sides by a value: it came out as never before on the culprits alone, and the call that
they made, or left out, goes by what it set, filled or returned.

Example: `if payload(hook) < limit:` was True on rank 5 alone, once, and puts the hook at the end of the list that run()
goes through. The hooks are the same on all ranks, and no condition around their calls differs.

What came out so is recorded; what the call goes by is the backward slice from it (``reason``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.execution.decisions import Key, condition_key
from hangdoc.diagnosis.program.items import Predicate
from hangdoc.diagnosis.source.values import SideRanks
from hangdoc.model.diagnosis import Branch, BranchValue

_KINDS = ("if", "ifexp", "while")


def parted_by_value(case: Case, ranks: SideRanks, gap: Gap | None, *, ever: bool = False) -> Branch | None:
    """That decision, of several the nearest to the call; None where none is recorded, or the call goes by none.

    ``ranks``: the culprits, the others; ``gap``: where their calls differ, if they do. ``ever``: also what came out so
    before the last call that the sides made alike."""
    new: Mapping[Key, str] = case.execution.new(*ranks) if all(ranks) else {}
    new = new or (case.execution.once_only(*ranks) if ever and all(ranks) else {})
    if not new:
        return None
    # Who has recorded nothing new does not wait for the import.
    from hangdoc.diagnosis.reason.reasons import slice_of
    from hangdoc.diagnosis.reason.starts import Sides, parted_at

    sides = Sides(*ranks)
    for item in slice_of(case, sides, parted_at(gap, sides)):
        value = new.get(_key(item)) if isinstance(item, Predicate) else None
        if isinstance(item, Predicate) and value is not None and item.kind in _KINDS:
            return _as_branch(item, value, ranks)
    return None


def decided_anew(case: Case, ranks: SideRanks, gap: Gap | None, points: Sequence[BranchPoint]) -> str:
    """The condition, the first of ``points`` or one that decided by a value, that is recorded to have come out on the
    culprits alone as never before; '' where none is. A loop is none: nobody knows which of two has a round too few.
    """
    top = points[0] if points and points[0].recorded else None
    if top is None:
        found = parted_by_value(case, ranks, gap)
        return found.condition if found is not None and found.kind != "loop" else ""
    key = condition_key(top.file, top.guard.line, top.guard.condition)
    is_new = not top.uneven and all(ranks) and key in case.execution.once_only(*ranks)
    return top.guard.condition if is_new else ""


def _key(item: Predicate) -> Key:
    return condition_key(item.file, item.line, item.text)


def _as_branch(item: Predicate, value: str, ranks: SideRanks) -> Branch:
    text = item.text if item.kind == "ifexp" else f"{item.kind} {item.text}:"
    kind = {"ifexp": "expression", "while": "loop"}.get(item.kind, "if")
    other = "False" if value == "True" else "True"
    came = (BranchValue(item.text, v, some, "at-divergence") for v, some in zip((value, other), ranks, strict=True))
    return Branch(item.file, item.line, text, kind, tuple(came))
