"""Of ranks that have got what another one waits for, the one that alone has asked for more of it.

Example: four ranks borrow a slot each of four, and give it back after the all_reduce. Rank 1 alone has run the second
`self.slots.take()`, under `if self.draft is not None:`, and rank 0 waits in its first one → rank 1.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from hangdoc.diagnosis.condition.elsewhere.left_behind import LeftBehind
from hangdoc.diagnosis.condition.elsewhere.ran_alone import ran_alone
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.syntax import holds, last_name, walk
from hangdoc.diagnosis.state.threads import Chain
from hangdoc.model.kinds import Confidence

_MOST_RANKS = 64
"""Ranks of which each is compared with all others; chosen by hand."""


@dataclass(frozen=True, slots=True)
class AskedMore(Explanation):
    """The ``waiting`` are in ``request``, whose answer the thread at the end of ``chain`` holds back; the culprit alone
    has made one more such call, by ``left``."""

    waiting: tuple[int, ...]
    chain: Chain
    request: str
    left: LeftBehind


def asked_more(case: Case, absent: tuple[int, ...], waiting: tuple[int, ...], chain: Chain) -> Blame[AskedMore] | None:
    """The blame of the only rank that has run a further call of a function by which the others came to their request;
    None where several have, or the counters of lines do not tell."""
    asking = [plain(frame.function).rpartition(".")[2] for frame in user_stack(case.activities[waiting[0]].stack)]
    found: dict[int, tuple[str, LeftBehind]] = {}
    for rank in absent if len(absent) <= _MOST_RANKS else ():
        others = tuple(r for r in sorted(case.seen) if r != rank)
        for each in ran_alone(case, ((rank,), others)):
            request = next((name for name in asking if _calls(case, each, name)), "") if each.side == 0 else ""
            if request:
                found.setdefault(rank, (request, each))
    if len(found) != 1:
        return None
    ((rank, (request, left)),) = found.items()
    proved = chain.last.thread.wakes_in is None
    sure = f"rank {rank} alone has made another call of {request}(), by the counters of lines"
    return Blame(
        AskedMore(waiting, chain, request, left), (rank,), proved=proved, confidence=Confidence.LIKELY, sure=sure
    )


def _calls(case: Case, left: LeftBehind, name: str) -> bool:
    """True if what runs under the condition calls the function."""
    tree = case.sources.function(left.file, left.line)
    nodes = [n for n in walk(tree) if isinstance(n, ast.If) and n.lineno == left.guard.line] if tree else []
    suites = [n.body if left.guard.taken else n.orelse for n in nodes]
    calls = [c for suite in suites for n in suite for c in walk(n) if isinstance(c, ast.Call)]
    return any(last_name(call.func) == name and not holds(nodes[0].test, call.lineno) for call in calls)
