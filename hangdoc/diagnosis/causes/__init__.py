"""What we call it and how to fix it: one module per family of the catalogue.

A rule looks at the case and the blame, never at names of files or programs, and answers with a ``Finding`` or None.
The first rule that answers names the cause; none of them changes who is to blame.
"""

from __future__ import annotations

from hangdoc.diagnosis.blame import Blame
from hangdoc.diagnosis.case import Case
from hangdoc.diagnosis.causes import busy, gone, launching, sequences, starting
from hangdoc.diagnosis.causes.finding import Finding

# The order is the priority: what explains the others' waiting comes first.
_RULES = (
    gone.stopped,
    gone.killed,
    starting.never_joined,
    gone.exited,
    launching.parted_before_launch,
    sequences.uneven_iterations,
    sequences.order_across_groups,
    sequences.implicit_collective,
    sequences.collective_on_some_ranks,
    busy.straggler,
    busy.sleeping,
)


def name_cause(case: Case, blame: Blame) -> Finding | None:
    """The first cause whose pattern holds, None for a hang that fits nothing in the catalogue."""
    for rule in _RULES:
        finding = rule(case, blame)
        if finding is not None:
            return finding
    return None
