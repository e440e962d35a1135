"""The new diagnosis beside the one that speaks: whom it would blame, how sure it is, and the reason it would give.

It is looked at where the environment has HANGDOC_ENGINE=next; nothing of it is imported otherwise. Outcome, cause and
words are still today's, as long as both blame the same ranks.
"""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.calls.alignment import Gap, all_repairs
from hangdoc.diagnosis.causes.nearest import gap_of, sides_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.hypotheses.judge import hypotheses
from hangdoc.diagnosis.hypotheses.suspects import Ranks
from hangdoc.diagnosis.program.items import Predicate
from hangdoc.diagnosis.reason.judged import Reason, line_of_item
from hangdoc.diagnosis.reason.known import Strength
from hangdoc.diagnosis.reason.reasons import reasons
from hangdoc.diagnosis.reason.starts import Sides, parted_at
from hangdoc.model.diagnosis import Branch, Diagnosis, Divergence
from hangdoc.model.kinds import Confidence, Outcome
from hangdoc.model.wording import name_ranks

_KINDS = {"for": "loop", "while": "loop", "comprehension": "loop", "match": "match", "except": "try", "with": "try"}
"""Kind of a predicate → that of a branch in the document; 'if' for the others."""
_WITH_CULPRITS = (Outcome.HANG, Outcome.CRASHED, Outcome.SLOW)
_MOST_ALTERNATIVES = 2
"""Beside the likeliest: the first three have the culprits in 93 % of the saved cases."""


def as_judged(case: Case, blame: Blame[Explanation], told: Diagnosis) -> Diagnosis:
    """``told`` with the culprits, the confidence and the condition of the new diagnosis.

    Where today's says that no rank is to blame it stays: there is no hypothesis yet for networks, devices, launchers.
    """
    judged = hypotheses(case) if told.outcome in _WITH_CULPRITS and (blame.culprits or blame.alternatives) else []
    if not judged:
        return replace(told, divergence=_with_branch(told.divergence, None))
    first, *others = judged
    sides = sides_of(case, blame, first.culprits)
    agreed = {*first.culprits} == {*told.culprits}
    gap = gap_of(blame) if agreed else _gap_of_calls(case, sides)
    reason = next(iter(reasons(case, sides, parted_at(gap, sides)).reasons), None) if sides.others else None
    confidence = first.confidence
    if confidence == Confidence.CERTAIN:
        # No clause without evidence; and that a predicate differs, even where proved, does not say that it decided.
        reason = reason if reason is not None and reason.strength > Strength.UNKNOWN else None
        confidence = Confidence.LIKELY if case.hidden or reason is not None else confidence
    possible = confidence == Confidence.POSSIBLE
    told = replace(
        told,
        confidence=confidence,
        sure=f"{first.share:.0%} of what speaks for any ranks",
        alternatives=tuple(each.culprits for each in others[:_MOST_ALTERNATIVES]) if possible else (),
        divergence=_with_branch(told.divergence if agreed else None, _branch_of(case, reason)),
    )
    return told if agreed else _of_others(case, first.culprits, told)


def _of_others(case: Case, culprits: Ranks, told: Diagnosis) -> Diagnosis:
    """Who, and no word more: what is said of other ranks is not said of these."""
    waiting = {wait.waiter for wait in case.graph.waits}
    return replace(
        told,
        verdict=f"{name_ranks(culprits)} {'is' if len(culprits) == 1 else 'are'} to blame.".capitalize(),
        cause=None,
        culprits=culprits,
        culprit_processes=(),
        victims=tuple(sorted(waiting - set(culprits))),
        why="",
        fix="",
        repair=None,
        code=(),
        calls=(),
        branches=None,
        evidence=(),
    )


def _gap_of_calls(case: Case, sides: Sides) -> Gap | None:
    """Where the calls of the sides diverge, by the smallest repair that lays it to the culprits."""
    several = (history for history in case.histories if len(history.members) > 1)
    found = (each for history in several for each in all_repairs(history, case.ended & set(history.members)))
    fitting = [each for each in found if {*each.culprits} == {*sides.culprits} and each.first is not None]
    return min(fitting, key=lambda each: (each.cost, each.when)).first if fitting else None


def _branch_of(case: Case, reason: Reason | None) -> Branch | None:
    if reason is None:
        return None
    item = reason.item
    kind = _KINDS.get(item.kind, "if") if isinstance(item, Predicate) else "expression"
    return Branch(item.file, item.line, line_of_item(case, item), kind)


def _with_branch(found: Divergence | None, branch: Branch | None) -> Divergence | None:
    """The divergence with that branch; None where there is nothing to tell."""
    sides = found.sides if found is not None else ()
    return Divergence(sides, branch) if sides or branch is not None else None
