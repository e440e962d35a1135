"""The new diagnosis beside the one that speaks: whom it would blame, how sure it is, and the reason it would give.

It is looked at where the environment has HANGDOC_ENGINE=next; nothing of it is imported otherwise. The outcome is still
today's, and so are the words as long as both blame the same ranks for the same cause.
"""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.causes.nearest import gap_of, sides_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.hypotheses.formed import gap_of_calls
from hangdoc.diagnosis.hypotheses.judge import hypotheses
from hangdoc.diagnosis.naming.codes import code_of
from hangdoc.diagnosis.naming.facts import Facts
from hangdoc.diagnosis.naming.words import told as said_of
from hangdoc.diagnosis.program.items import Predicate
from hangdoc.diagnosis.reason.judged import Reason, line_of_item
from hangdoc.diagnosis.reason.known import Strength
from hangdoc.diagnosis.reason.reasons import reasons
from hangdoc.diagnosis.reason.starts import parted_at
from hangdoc.model.catalogue import cause
from hangdoc.model.diagnosis import Branch, Diagnosis, Divergence
from hangdoc.model.kinds import Confidence, Outcome
from hangdoc.model.message import Sentences
from hangdoc.model.writing import Writer

_KINDS = {"for": "loop", "while": "loop", "comprehension": "loop", "match": "match", "except": "try", "with": "try"}
"""Kind of a predicate → that of a branch in the document; 'if' for the others."""
_WITH_CULPRITS = (Outcome.HANG, Outcome.CRASHED, Outcome.SLOW)
_MOST_ALTERNATIVES = 2
"""Beside the likeliest: the first three have the culprits in 93 % of the saved cases."""


def as_judged(case: Case, blame: Blame[Explanation], told: Diagnosis, writer: Writer) -> Diagnosis:
    """``told`` with the culprits, the cause, the confidence and the condition of the new diagnosis.

    Where today's says that no rank is to blame it stays: there is no hypothesis yet for networks, devices, launchers.
    """
    judged = hypotheses(case) if told.outcome in _WITH_CULPRITS and (blame.culprits or blame.alternatives) else []
    if not judged:
        return replace(told, divergence=_with_branch(told.divergence, None))
    first, *others = judged
    sides = sides_of(case, blame, first.culprits)
    agreed = {*first.culprits} == {*told.culprits}
    gap = gap_of(blame) if agreed else gap_of_calls(case, first.culprits)
    reason = next(iter(reasons(case, sides, parted_at(gap, sides)).reasons), None) if sides.others else None
    confidence = first.confidence
    if confidence == Confidence.CERTAIN:
        # No clause without evidence; and that a predicate differs, even where proved, does not say that it decided.
        reason = reason if reason is not None and reason.strength > Strength.UNKNOWN else None
        confidence = Confidence.LIKELY if case.hidden or reason is not None else confidence
    facts = Facts(case, first.culprits)
    named = agreed and told.cause is not None and told.cause.code == code_of(facts)
    if confidence == Confidence.CERTAIN and not (named and facts.shows_parting):
        confidence = Confidence.LIKELY  # that it is these ranks does not prove what is said of them
    possible = confidence == Confidence.POSSIBLE
    told = replace(
        told,
        confidence=confidence,
        sure=f"{first.share:.0%} of what speaks for any ranks",
        alternatives=tuple(each.culprits for each in others[:_MOST_ALTERNATIVES]) if possible else (),
        divergence=_with_branch(told.divergence if agreed else None, _branch_of(case, reason)),
    )
    return told if named else _in_own_words(facts, told, writer)


def _in_own_words(facts: Facts, told: Diagnosis, writer: Writer) -> Diagnosis:
    """What the form alone says: nothing of what is said of other ranks, or of another cause."""
    said, culprits = said_of(facts), facts.culprits
    waiting = {wait.waiter for wait in facts.case.graph.waits}
    return replace(
        told,
        verdict=writer.write(said.verdict),
        cause=cause(said.code) if said.code else None,
        culprits=culprits,
        culprit_processes=(),
        victims=tuple(sorted(waiting - set(culprits))),
        why=writer.write(Sentences(said.why)),
        fix=writer.write(Sentences(said.fix)),
        repair=None,
        code=(),
        calls=(),
        branches=None,
        evidence=(),
    )


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
