"""The new diagnosis beside the one that speaks: the reason that it would give for today's blame.

It is looked at where the environment has HANGDOC_ENGINE=next; nothing of it is imported otherwise.
"""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.causes.finding import others_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.program.items import Predicate
from hangdoc.diagnosis.reason.reasons import Found, reasons
from hangdoc.diagnosis.reason.starts import CULPRITS, OTHERS, Parted, Sides
from hangdoc.model.diagnosis import Branch, Divergence

_KINDS = {"for": "loop", "while": "loop", "comprehension": "loop", "match": "match", "except": "try", "with": "try"}
"""Kind of a predicate → that of a branch in the document; 'if' for the others."""


def reasons_of(case: Case, blame: Blame[Explanation], culprits: tuple[int, ...] = ()) -> Found:
    """What parted the culprits from the others; ``culprits``: where others than the blamed ones are meant."""
    sides = sides_of(case, blame, culprits)
    return reasons(case, sides, parted_at(blame, sides))


def sides_of(case: Case, blame: Blame[Explanation], culprits: tuple[int, ...] = ()) -> Sides:
    """The sides as they are blamed; with ``culprits``, all others against these."""
    if culprits and {*culprits} != {*blame.culprits}:
        return Sides(culprits, tuple(sorted(set(case.activities) - set(culprits) - case.hidden)))
    return Sides(tuple(sorted(blame.culprits)), others_of(case, blame))


def parted_at(blame: Blame[Explanation], sides: Sides) -> list[Parted]:
    """(side, stack, whether it is the main thread's) of the two calls at which the sides diverged, if they did."""
    gap = blame.diverged.gap if blame.diverged is not None else None
    found: list[Parted] = []
    for token in (gap.mine, gap.theirs, gap.token) if gap is not None else ():
        side = next((side for side in (CULPRITS, OTHERS) if token is not None and token.rank in sides[side]), None)
        if token is not None and token.stack and side is not None:
            found.append((side, token.stack, token.thread == "MainThread"))  # the same call twice is one start
    return found


def with_reason(case: Case, blame: Blame[Explanation], found: Divergence | None) -> Divergence | None:
    """The divergence with the new reason for its branch; without a branch where there is none."""
    first = next(iter(reasons_of(case, blame).reasons), None) if blame.culprits else None
    if first is None:
        return replace(found, branch=None) if found is not None and found.sides else None
    item = first.item
    kind = _KINDS.get(item.kind, "if") if isinstance(item, Predicate) else "expression"
    text = case.sources.line(item.file, item.line) or item.text
    return replace(found or Divergence(()), branch=Branch(item.file, item.line, text, kind))
