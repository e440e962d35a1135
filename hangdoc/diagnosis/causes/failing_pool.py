"""HD509: the workers of a pool end in their initializer, and the pool starts others without an end."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.blame.failing_pool import FailingPool
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import at, cited, line_of, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.syntax import walk
from hangdoc.model.message import Condition, Joined, Ranks, joined, sentence
from hangdoc.model.process import Frame

_MOST_RAISES = 3
"""Conditions of `raise` statements that are told; more of them are no reason. Chosen by hand."""


@cause("HD509", explains=FailingPool, order=357)
def workers_end_at_once(case: Case, blame: Blame[FailingPool]) -> Finding:
    """HD509: what a pool's workers run first raises."""
    found, culprits = blame.found, blame.culprits
    raised = _raised_under(case, found.defined_at)
    return Finding(
        "HD509",
        sentence(
            [
                [Ranks(culprits), " waits for a pool of processes", at(case.activities[culprits[0]].where)],
                [", whose workers end as soon as they start"],
            ],
            where_they_wait(case, others_of(case, blame)),
        ),
        joined(
            [f"each worker runs {found.initializer}() first, given at ", line_of(found.made_at)],
            "where that raises, the pool starts another worker, again and again, and no task is ever taken",
            [f"{found.initializer}() raises under ", Joined(raised, " or ")] if raised else "",
        ),
        "look for the exception on stderr; let the initializer catch what it can do without, or use "
        "concurrent.futures.ProcessPoolExecutor, which raises BrokenProcessPool",
        decided_at=raised[-1] if raised else None,
    )


def _raised_under(case: Case, defined_at: Frame | None) -> list[Condition]:
    """The conditions of the `raise` statements in the function; [] where it has none, or too many."""
    tree = case.sources.function(defined_at.file, defined_at.line) if defined_at is not None else None
    lines = [n.lineno for n in walk(tree) if isinstance(n, ast.Raise)] if tree is not None else []
    if defined_at is None or tree is None or len(lines) > _MOST_RAISES:
        return []
    around = [found[-1] for line in lines if (found := guards(tree, line))]
    return [cited(guard, defined_at.file) for guard in around]
