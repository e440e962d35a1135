"""A pool of processes whose workers end as soon as they start: their initializer raises, and multiprocessing.Pool
starts others in their place, again and again, so that its tasks are never taken.

Example: rank 1 waits in `pool.map(encode, lines)`, and of its workers none is older than the two looks; the pool was
made with `initializer=load_dictionary` → rank 1.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.sources import Sources, UserCall
from hangdoc.diagnosis.source.syntax import last_name
from hangdoc.diagnosis.state.process import kind_mark
from hangdoc.model.kinds import Confidence, WaitReason
from hangdoc.model.process import Frame, Process

_YOUNG = 3.0
"""Seconds before the second look: the looks are about one second apart, and a snapshot takes about one more.
Judgement."""
_LOOKS = 2
"""Of a process that was there all the time."""
_GIVEN_SECOND = 1
"""Place of the initializer among the arguments of Pool(processes, initializer, …)."""


@dataclass(frozen=True, slots=True)
class FailingPool(Explanation):
    """The workers of the culprit's pool end in their initializer."""

    made_at: Frame
    initializer: str
    defined_at: Frame | None


def failing_pool(case: Case) -> Blame[FailingPool] | None:
    """The blame of the rank that waits for such a pool; None where a worker is there in both looks, or where a pool of
    the program's replaces its workers on purpose."""
    waiting = [rank for rank in sorted(case.graph.roots & case.seen) if _all_are_new(case, rank)]
    made = [(each, given) for each in case.sources.user_calls(*names("makes_pool")) if (given := _initializer(each))]
    if len(waiting) != 1 or len({given for _, given in made}) != 1 or _replaces_workers(case.sources):
        return None
    pool, given = made[0]
    made_at = pool.at
    bodies = case.sources.user_definitions(given)
    defined_at = Frame(bodies[0][0], bodies[0][1].lineno, given) if len(bodies) == 1 else None
    sure = "none of the pool's workers is there in both looks, a second apart"
    found = FailingPool(made_at, given, defined_at)
    return Blame(found, tuple(waiting), proved=True, confidence=Confidence.LIKELY, sure=sure)


def _all_are_new(case: Case, rank: int) -> bool:
    """True if the rank waits for a pool in both looks, and all of its children have begun since, or about then."""
    process = case.ranks[rank].process
    if process is None or case.activities[rank].reason != WaitReason.POOL or len(process.looks) < _LOOKS:
        return False
    looks = [kind_mark(look.main.frames) if look.main is not None else None for look in process.looks]
    if any(mark is None or mark.reason != WaitReason.POOL for mark in looks):
        return False
    return bool(process.children) and all(_is_new(case, child) for child in process.children)


def _is_new(case: Case, child: Process) -> bool:
    return len(child.looks) < _LOOKS and case.job.taken - child.started < _YOUNG


def _initializer(each: UserCall) -> str:
    """The last name of the function that the pool's workers run first; '' where it was given none."""
    given = [word.value for word in each.call.keywords if word.arg == "initializer"]
    given += each.call.args[_GIVEN_SECOND : _GIVEN_SECOND + 1]
    return last_name(given[0]) if given and isinstance(given[0], ast.Name | ast.Attribute) else ""


def _replaces_workers(sources: Sources) -> bool:
    pools = sources.user_calls(*names("makes_pool"))
    return any(word.arg in names("replaces_workers") for each in pools for word in each.call.keywords)
