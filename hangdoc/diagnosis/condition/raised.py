"""The condition under which an exception was raised that led a rank away from the others."""

from __future__ import annotations

from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.queries import raises


def condition_of_raise(case: Case, ranks: tuple[int, ...]) -> BranchPoint | None:
    """The `if` whose `raise` the ranks are in an except or finally suite for; None where a call raised it, or they are
    in none.

    Example: `if x.isnan(): raise ValueError`, and rank 1 is in the `finally:` around its caller → that `if`.
    """
    for rank in ranks:
        journal = case.ranks[rank].journal if rank in case.ranks else None
        frame = next(iter(user_stack(journal.handled_at)), None) if journal is not None and journal.handled else None
        tree = case.sources.function(frame.file, frame.line) if frame is not None else None
        if frame is None or tree is None or journal is None or frame != journal.handled_at[0]:
            return None
        inner = next((g for g in reversed(guards(tree, frame.line)) if g.kind != "return"), None)
        if inner is None or inner.kind != "if" or not inner.taken or not raises(tree, inner.line):
            return None
        return BranchPoint(inner, frame.file, plain(frame.function), frame.line, 0, 0.0)
    return None
