"""Two loops around one call: the outer one ended, or the inner one was left early in the last round of the outer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hangdoc.diagnosis.causes.phrases import cited
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.elsewhere.made_objects import class_chosen_for
from hangdoc.diagnosis.condition.loops.inner_loop_left import (
    around_it,
    can_end_early,
    further_in,
    makes_items,
    of_library_further_in,
)
from hangdoc.diagnosis.condition.loops.way_out import way_out_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.source.guards import Guard, way_out_guards
from hangdoc.model.message import Condition, Message

_WHICH = "which of the two loops ended is not seen"
_MORE = "had more rounds in one of its own"


@dataclass(frozen=True, slots=True)
class OtherLoop:
    """What else may have ended; empty where one loop explains it. ``at``: what may have decided beside what is shown of
    the first loop."""

    why: Message = ""
    doubt: str = ""
    at: Condition | None = None


def other_loop(case: Case, points: Sequence[BranchPoint], *, early: bool = True) -> OtherLoop:
    """The other loop around the call inside the first of ``points``, a loop, that would explain it as well. ``early``:
    the culprits have made fewer rounds, and not more.

    Example: of `for batch in loader: ⏎ while True: ⏎ step() ⏎ if small(): ⏎ break`, beside the `for` the `while`.
    """
    first, inner, outer = points[0], further_in(case, points) or of_library_further_in(case, points), around_it(points)
    if inner is not None:
        out = _ways_out(case, inner)
        if out and set(out) <= set(_ways_out(case, first)):
            return OtherLoop()  # a `return` leaves both of them
        only = out[0] if len(out) == 1 else inner.guard
        left: Message = [", at ", cited(only, inner.file)] if only is not inner.guard else ""
        how = "was left early" if can_end_early(case, inner) else "had fewer rounds in one of its own"
        said: Message = [
            "or ",
            cited(inner.guard, inner.file),
            f" within it {how if early else _MORE}",
            left,
            _chosen(case, inner),
        ]
        return OtherLoop(said, _WHICH, cited(only, inner.file))
    if outer is None or not early:
        return OtherLoop()
    out = _ways_out(case, first) if way_out_of(case, first) is None else []
    where = cited(outer.guard, outer.file)
    return OtherLoop(["or ", where, " around it ended"], _WHICH, cited(out[0], first.file) if len(out) == 1 else where)


def _chosen(case: Case, loop: BranchPoint) -> Message:
    """What chose the class whose method makes the loop's items, where two classes have one; '' where none is seen."""
    name = makes_items(case.sources, loop)
    chosen = class_chosen_for(case.sources, name) if name else None
    return ["; the class whose ", name, "() runs is chosen by ", chosen] if chosen is not None else ""


def _ways_out(case: Case, loop: BranchPoint) -> list[Guard]:
    tree = case.sources.function(loop.file, loop.guard.line)
    found = way_out_guards(tree, loop.guard.line) if tree is not None else []
    return list({guard.place: guard for guard in found}.values())
